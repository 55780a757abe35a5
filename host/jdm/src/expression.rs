//! Checks of one expression: that it compiles, and that it is a function of its input.

use zen_expression::compiler::Opcode;
use zen_expression::functions::{DateMethod, FunctionKind, InternalFunction, MethodKind};
use zen_expression::{ExpressionKind, Isolate};

/// Operators and brackets in one expression. The engine parses and compiles by recursion, at worst one level for each of
/// them, and does not bound it: an overflow would end the process. The stack of `pool` is made for this.
pub(crate) const MAX_NESTING: usize = 2_000;

/// What is wrong with an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fixable {
    pub(crate) message: String,
    pub(crate) fix: &'static str,
}

/// Compiles expressions on a stack of the pool.
#[derive(Debug)]
pub(crate) struct Checker(Isolate);

impl Checker {
    pub(crate) fn new() -> Self {
        Self(Isolate::new())
    }

    /// Whether the expression may stand in a rule.
    pub(crate) fn check(&mut self, source: &str, kind: &ExpressionKind) -> Result<(), Fixable> {
        if nesting(source) > MAX_NESTING {
            return Err(Fixable {
                message: format!("has more than {MAX_NESTING} operators and brackets"),
                fix: "split it into several expressions or rows",
            });
        }
        let compiled = match kind {
            ExpressionKind::Standard => self.0.compile_standard(source).map(|e| e.bytecode().to_vec()),
            ExpressionKind::Unary => self.0.compile_unary(source).map(|e| e.bytecode().to_vec()),
        };
        let code = compiled.map_err(|e| Fixable {
            message: format!("does not compile: {e}"),
            fix: "texts stand in quotes, tests of a cell look like >= 50 or \"gold\"",
        })?;
        match impure(&code) {
            None => Ok(()),
            Some(what) => Err(Fixable {
                message: format!("{what}, so the same batch would not give the same answer again"),
                fix: "make it an input of the rule",
            }),
        }
    }
}

/// An upper bound of how deep the engine recurses: what is no letter, digit, space, dot inside a name, comma or part of a
/// text may open a level. Texts are not told apart by their quotes: counting too much only refuses earlier.
fn nesting(source: &str) -> usize {
    let marks = source.chars().filter(|c| c.is_ascii_punctuation() && !matches!(c, ',' | '"' | '\'' | '_')).count();
    // `not`, `and`, `or`, `in` are operators that are spelled.
    let words = source.split(|c: char| !c.is_ascii_alphabetic());
    marks + words.filter(|w| matches!(*w, "not" | "and" | "or" | "in")).count()
}

/// What in the code reads the clock or draws a random number, as far as the code alone tells. A text made at run time
/// that spells `now` or the name of a zone is beyond it.
fn impure(code: &[Opcode]) -> Option<String> {
    let says_now = code.iter().any(|op| matches!(op, Opcode::PushString(s) if &**s == "now"));
    code.iter().enumerate().find_map(|(at, op)| match op {
        Opcode::CallFunction { kind: FunctionKind::Internal(InternalFunction::Rand), .. } => {
            Some("rand() draws a random number".to_owned())
        }
        Opcode::CallFunction { kind: FunctionKind::Internal(InternalFunction::Date), arg_count } => {
            match (arg_count, first_text(&code[..at], *arg_count)) {
                (0, _) => Some("d() reads the clock".to_owned()),
                // The engine takes the name of a zone for "now, there".
                (_, Some(text)) if text.chars().any(|c| c.is_alphabetic() && !"TtZz".contains(c)) => {
                    Some(format!("d('{text}') reads the clock"))
                }
                _ => None,
            }
        }
        Opcode::CallFunction { kind: kind @ FunctionKind::Deprecated(_), .. } if says_now => {
            Some(format!("{kind}('now') reads the clock"))
        }
        Opcode::CallMethod { kind: MethodKind::DateMethod(method), .. }
            if matches!(method, DateMethod::IsToday | DateMethod::IsTomorrow | DateMethod::IsYesterday) =>
        {
            Some(format!("{method}() reads the clock"))
        }
        _ => None,
    })
}

/// The first of the arguments that were pushed just before, if all of them are plain values and it is a text.
fn first_text(before: &[Opcode], arguments: u32) -> Option<&str> {
    let start = before.len().checked_sub(arguments as usize)?;
    let pushed = &before[start..];
    let plain = |op: &Opcode| {
        matches!(op, Opcode::PushString(_) | Opcode::PushNumber(_) | Opcode::PushNull | Opcode::PushBool(_))
    };
    match pushed.first() {
        Some(Opcode::PushString(text)) if pushed.iter().all(plain) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standard(source: &str) -> Result<(), Fixable> {
        Checker::new().check(source, &ExpressionKind::Standard)
    }

    #[test]
    fn what_reads_the_clock_or_draws_is_found() {
        for source in [
            "rand(10)",
            "map([1, 2], rand(#))",
            "d()",
            "d().add('1d')",
            "d('Europe/Berlin')",
            "d('UTC', 'Europe/Berlin')",
            "d(created).isToday()",
            "date('now')",
            "year('now') + 1",
            "startOf('now', 'day')",
            "dateString(date(x == null ? 'now' : x))",
            "`it is ${d()}`",
        ] {
            let problem = standard(source).expect_err(source);
            assert!(problem.message.contains("so the same batch"), "{source}: {problem:?}");
        }
    }

    #[test]
    fn what_only_calculates_with_dates_is_not() {
        for source in [
            "d('2026-01-31T12:00:00Z').add('1d')",
            "d(created_at, 'Europe/Berlin').format('%H')",
            "d('2026-01-31', 'Asia/Seoul')",
            "date('2026-01-31') - date(created_at)",
            "status == 'now'",
            "operand + brand",
        ] {
            standard(source).expect(source);
        }
    }

    #[test]
    fn nesting_is_bounded_before_the_engine_sees_it() {
        let deep = format!("{}1{}", "(".repeat(100_000), ")".repeat(100_000));
        assert!(standard(&deep).expect_err("too deep").message.starts_with("has more than"));
        let long = vec!["1"; 100_000].join("+");
        assert!(standard(&long).expect_err("too long").message.starts_with("has more than"));
        let list = vec!["'a'"; 100_000].join(",");
        standard(&format!("x in [{list}]")).expect("a list is not deep");
    }

    #[test]
    fn the_deepest_expression_that_is_allowed_fits_the_stack() {
        let pool = crate::pool::Pool::new(1).expect("a pool");
        let half = MAX_NESTING / 2;
        for source in [
            format!("{}1{}", "(".repeat(half), ")".repeat(half)),
            vec!["1"; MAX_NESTING].join("+"),
            format!("{}1", "-".repeat(MAX_NESTING)),
            format!("{}1", "!".repeat(MAX_NESTING)),
            format!("{}1", "not ".repeat(MAX_NESTING)),
            format!("a{}", ".b".repeat(MAX_NESTING)),
            format!("{}1", "a ? b : ".repeat(half)),
            format!("{}1{}", "[".repeat(half), "]".repeat(half)),
            format!("{}1{}", "abs(".repeat(half), ")".repeat(half)),
            format!("{}1", "2 ^ ".repeat(MAX_NESTING)),
        ] {
            for kind in [ExpressionKind::Standard, ExpressionKind::Unary] {
                let source = source.clone();
                // Whether it compiles does not matter, only that it comes back.
                pool.run(move |_| {
                    let _ = Checker::new().check(&source, &kind);
                    let _ = Isolate::new().run_standard(&source);
                })
                .expect("no overflow");
            }
        }
    }
}
