//! Reads SQL and decides whether it is one plain SELECT whose answer is a function of its inputs.
//!
//! `now()` and its relatives become the parameter [`TIME`]: T of the batch. What would answer differently each time is
//! refused. No planning happens here.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::common::TableReference;
use datafusion::sql::parser::{DFParserBuilder, Statement as FileStatement};
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType as SqlType, Expr, Ident, Query, Select, SelectItem, SetExpr, Statement, Value, VisitMut,
    VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::error::Refusal;

/// The parameter that `now()` reads. No parameter of a manifest can have this name.
pub(crate) const TIME: &str = "weir now";

/// How deep expressions and subqueries may be nested.
const DEPTH: usize = 64;

/// How many operators a statement may have. A chain of them is no nesting to the parser, which reads it in a loop, but a
/// tree as deep as it is long to everything that walks it after: 1,200 overflowed a stack of 2 MiB.
const OPERATORS: usize = 400;

/// A checked statement, with what it uses.
#[derive(Debug)]
pub(crate) struct Checked {
    pub statement: Statement,
    /// Parameters that it names.
    pub params: BTreeSet<String>,
}

/// Reads one SELECT. `known` are the parameters that it may name. All refusals are collected.
pub(crate) fn check(sql: &str, known: &[&str]) -> Result<Checked, Vec<Refusal>> {
    let mut query = parse(sql).map_err(|refusal| vec![refusal])?;
    let mut reader = Reader { known, used: BTreeSet::new(), refused: Vec::new() };
    let _ = VisitMut::visit(&mut *query, &mut reader);
    if reader.refused.is_empty() {
        Ok(Checked { statement: Statement::Query(query), params: reader.used })
    } else {
        Err(reader.refused)
    }
}

/// What is asked at a prompt.
#[derive(Debug)]
pub(crate) enum Question {
    /// One SELECT, without parameters; `now()` is left to the engine.
    Rows(Box<Query>),
    /// `SHOW TABLES`.
    Tables,
    /// `DESCRIBE table`: its columns.
    Columns(TableReference),
}

/// Reads what is asked at a prompt.
pub(crate) fn question(sql: &str) -> Result<Question, Refusal> {
    let statement = statement(sql)?;
    if let FileStatement::Statement(statement) = &statement {
        match &**statement {
            Statement::ShowTables { .. } if statement.to_string() == "SHOW TABLES" => return Ok(Question::Tables),
            Statement::ExplainTable { table_name, hive_format: None, .. } => {
                let name = object_name_to_table_reference(table_name.clone(), true).map_err(|e| Refusal::of(&e))?;
                return Ok(Question::Columns(name));
            }
            _ => {}
        }
    }
    select(statement).map(Question::Rows).map_err(|refusal| match refusal.fix.as_str() {
        ONE_SELECT => Refusal { fix: format!("{ONE_SELECT}, SHOW TABLES or DESCRIBE table"), ..refusal },
        _ => refusal,
    })
}

const ONE_SELECT: &str = "write one SELECT";

/// Reads one SELECT, without looking into it.
pub(crate) fn parse(sql: &str) -> Result<Box<Query>, Refusal> {
    statement(sql).and_then(select)
}

fn statement(sql: &str) -> Result<FileStatement, Refusal> {
    if sql.trim().is_empty() {
        return Err(Refusal::new("", "it is empty", ONE_SELECT).partial());
    }
    chains(sql)?;
    let statements = DFParserBuilder::new(sql)
        .with_dialect(&GenericDialect {})
        .with_recursion_limit(DEPTH)
        .build()
        .and_then(|mut parser| parser.parse_statements())
        .map_err(|e| Refusal::of(&e))?;
    let count = statements.len();
    let mut statements = statements.into_iter();
    match (statements.next(), statements.next()) {
        (Some(first), None) => Ok(first),
        _ => Err(Refusal::new("", format!("it holds {count} statements"), ONE_SELECT)),
    }
}

fn select(statement: FileStatement) -> Result<Box<Query>, Refusal> {
    let refuse = |what: &str| Err(Refusal::new("", format!("only a SELECT is allowed, this is {what}"), ONE_SELECT));
    match statement {
        FileStatement::Statement(statement) => match *statement {
            Statement::Query(query) => match not_select(&query.body) {
                Some(what) => refuse(what),
                None => Ok(query),
            },
            other => refuse(&first_word(&other.to_string())),
        },
        FileStatement::CopyTo(_) => refuse("COPY"),
        FileStatement::Explain(_) => refuse("EXPLAIN"),
        FileStatement::CreateExternalTable(_) => refuse("CREATE EXTERNAL TABLE"),
        FileStatement::Reset(_) => refuse("RESET"),
    }
}

/// Refuses a statement whose tree could be too deep to walk, before there is a tree.
fn chains(sql: &str) -> Result<(), Refusal> {
    // What is no SQL to the tokenizer is none to the parser, which says it better.
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, sql).tokenize() else { return Ok(()) };
    let operators = tokens.iter().filter(|token| is_operator(token)).count();
    if operators <= OPERATORS {
        return Ok(());
    }
    Err(Refusal::new(
        "",
        format!("it has {operators} operators, and {OPERATORS} are allowed"),
        "write a long list as IN (...) or as rows of a table",
    ))
}

fn is_operator(token: &Token) -> bool {
    match token {
        Token::Word(word) => matches!(
            word.keyword,
            Keyword::AND
                | Keyword::OR
                | Keyword::XOR
                | Keyword::NOT
                | Keyword::IS
                | Keyword::LIKE
                | Keyword::ILIKE
                | Keyword::SIMILAR
                | Keyword::BETWEEN
                | Keyword::DIV
                | Keyword::COLLATE
                | Keyword::AT
                | Keyword::UNION
                | Keyword::INTERSECT
                | Keyword::EXCEPT
                | Keyword::JOIN
        ),
        Token::Comma | Token::Period | Token::LParen | Token::RParen | Token::SemiColon | Token::Whitespace(_) => false,
        Token::Number(..) | Token::Placeholder(_) | Token::EOF => false,
        Token::SingleQuotedString(_) | Token::DoubleQuotedString(_) => false,
        // Everything else that the dialect knows as a sign: arithmetic, comparison, casts, concatenation, subscripts.
        _ => true,
    }
}

fn first_word(statement: &str) -> String {
    let word: String = statement.chars().take_while(|c| c.is_ascii_alphabetic()).collect();
    word.to_ascii_uppercase()
}

/// What a query's body does beside reading: `WITH x AS (...) INSERT ...` is a query to the parser.
fn not_select(body: &SetExpr) -> Option<&'static str> {
    match body {
        SetExpr::Select(_) | SetExpr::Values(_) | SetExpr::Table(_) => None,
        SetExpr::Query(query) => not_select(&query.body),
        SetExpr::SetOperation { left, right, .. } => not_select(left).or_else(|| not_select(right)),
        SetExpr::Insert(_) => Some("INSERT"),
        SetExpr::Update(_) => Some("UPDATE"),
        SetExpr::Delete(_) => Some("DELETE"),
        SetExpr::Merge(_) => Some("MERGE"),
    }
}

struct Reader<'a> {
    known: &'a [&'a str],
    used: BTreeSet<String>,
    refused: Vec<Refusal>,
}

impl VisitorMut for Reader<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(what) = not_select(&query.body) {
            self.refused.push(Refusal::new(
                "",
                format!("only a SELECT is allowed, this holds {what}"),
                "write one SELECT",
            ));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if select.into.is_some() {
            self.refused.push(Refusal::new("", "SELECT INTO makes a table", "leave out INTO"));
        }
        // A bare parameter or now() keeps the name it is written with: what replaces it has no name of its own.
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item
                && let Some(name) = own_name(expr)
            {
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', name) };
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) => {
                let name = function.name.to_string().to_ascii_lowercase();
                match clock(&name) {
                    Clock::Now => *expr = time(),
                    Clock::Date => {
                        *expr = Expr::Cast {
                            kind: CastKind::Cast,
                            expr: Box::new(time()),
                            data_type: SqlType::Date,
                            array: false,
                            format: None,
                        }
                    }
                    Clock::Refused(fix) => self.refused.push(Refusal::new(
                        &name,
                        format!("{name} would answer differently each time"),
                        fix,
                    )),
                    Clock::None => {}
                }
            }
            Expr::Value(value) => {
                if let Value::Placeholder(text) = &value.value
                    && text.strip_prefix('$') != Some(TIME)
                {
                    self.parameter(&text.clone());
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Reader<'_> {
    fn parameter(&mut self, text: &str) {
        match text.strip_prefix('$') {
            Some(name) if self.known.contains(&name) => {
                self.used.insert(name.to_owned());
            }
            Some(name) => self.refused.push(Refusal::new(
                name,
                if self.known.is_empty() {
                    format!("parameter {text} is not declared; none is")
                } else {
                    format!("parameter {text} is not declared; declared are {}", self.known.join(", "))
                },
                "declare it under params with its type",
            )),
            None => {
                self.refused.push(Refusal::new(text, format!("{text} is no parameter"), "write parameters as $name"))
            }
        }
    }
}

fn time() -> Expr {
    Expr::Value(Value::Placeholder(format!("${TIME}")).with_empty_span())
}

fn own_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Placeholder(text) => Some(text.clone()),
            _ => None,
        },
        Expr::Function(function) => {
            let name = function.name.to_string().to_ascii_lowercase();
            matches!(clock(&name), Clock::Now | Clock::Date).then_some(name)
        }
        _ => None,
    }
}

enum Clock {
    Now,
    Date,
    Refused(&'static str),
    None,
}

fn clock(name: &str) -> Clock {
    match name {
        "now" | "current_timestamp" | "transaction_timestamp" | "statement_timestamp" => Clock::Now,
        "current_date" | "today" => Clock::Date,
        "current_time" | "localtime" | "localtimestamp" | "clock_timestamp" => Clock::Refused("use now()"),
        "random" => Clock::Refused("compute it from columns, for example with md5()"),
        "uuid" | "gen_random_uuid" => Clock::Refused("make an id from columns, for example with md5()"),
        "input_file_name" | "file_row_index" | "version" => Clock::Refused("leave it out"),
        _ => Clock::None,
    }
}
