//! One rule file, checked and compiled. Depends on nothing but its bytes, so it is shared by all rulesets that have it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::runtime::Runtime;
use weir_model::{Digest, Problem};
use zen_engine::Decision;
use zen_engine::model::{
    CustomNodeContent, DecisionNode, DecisionNodeKind, FunctionContent, FunctionNodeContent, GraphContent,
    TransformAttributes,
};
use zen_expression::{ExpressionKind, Variable};

use crate::expression::Checker;
use crate::memory::OUT_OF_MEMORY;
use crate::realm::{self, Limit, cpu_time};
use crate::script::{Draw, Source};
use crate::shape::{self, label};
use crate::value::shorten;

/// A rule file that may run.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) digest: Digest,
    graph: Arc<GraphContent>,
    /// The same with its function nodes in the older form as nodes of ours.
    realm: Arc<GraphContent>,
    functions: Vec<Function>,
    /// Other rules that it asks: name of the node, key.
    pub(crate) asks: Vec<(String, String)>,
}

/// Where function nodes run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    /// In the engine: any of them.
    Engine,
    /// In realms of ours: those in the older form. A rule with others never runs so.
    Realm,
}

/// A function node.
#[derive(Debug)]
struct Function {
    /// Which of the graph's nodes.
    index: usize,
    name: String,
    source: Source,
}

impl Unit {
    /// Reads, checks and compiles a file.
    pub(crate) fn load(file: &str, bytes: &[u8], runtime: &Runtime, until: Instant) -> Result<Self, Vec<Problem>> {
        let json: serde_json::Value = shape::read(file, bytes).map_err(|p| vec![p])?;
        let problems = shape::check(file, &json);
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut graph: GraphContent = serde_json::from_value(json).map_err(|e| {
            vec![
                Problem::new(file, format_args!("the engine cannot read the rule: {e}"))
                    .fix("save the rule again from the editor"),
            ]
        })?;
        let mut check = Check { file, expressions: Checker::new(), seen: HashSet::new(), problems: Vec::new() };
        for node in &graph.nodes {
            check.node(node, runtime);
            if Instant::now() > until {
                let late = Problem::new(file, "checking the rule takes longer than compile_time");
                check.problems.push(late.fix("make it define its functions quicker, or split it"));
                break;
            }
        }
        if !check.problems.is_empty() {
            return Err(check.problems);
        }
        graph.compile();
        // Without dictionaries there is nothing to resolve. Set, so that the engine does not compile a rule that
        // another one asks in every evaluation.
        graph.resolved_schemas = Some(Arc::default());
        let stripped = graph.stripped_functions.clone().unwrap_or_default();
        let functions = graph.nodes.iter().enumerate().filter_map(|(index, node)| {
            let source = match function(node)? {
                FunctionNodeContent::Version1(source) => Source::older(source),
                FunctionNodeContent::Version2(module) => {
                    Source::Module(stripped.get(&module.source).unwrap_or(&module.source).clone())
                }
            };
            let name = label(&node.name, &node.id).to_owned();
            Some(Function { index, name, source })
        });
        let asks = graph.nodes.iter().filter_map(|node| match &node.kind {
            DecisionNodeKind::DecisionNode { content } => {
                Some((label(&node.name, &node.id).to_owned(), content.key.to_string()))
            }
            _ => None,
        });
        Ok(Self {
            digest: Digest::of(bytes),
            functions: functions.collect(),
            asks: asks.collect(),
            realm: Arc::new(in_realm(&graph)),
            graph: Arc::new(graph),
        })
    }

    /// Names of the function nodes in module form.
    pub(crate) fn modules(&self) -> impl Iterator<Item = &str> {
        let modules = self.functions.iter().filter(|f| matches!(f.source, Source::Module(_)));
        modules.map(|f| f.name.as_str())
    }

    /// Whether it has function nodes.
    pub(crate) fn has_functions(&self) -> bool {
        !self.functions.is_empty()
    }

    /// How a node is called.
    pub(crate) fn name_of<'a>(&'a self, id: &'a str) -> &'a str {
        let node = self.graph.nodes.iter().find(|node| &*node.id == id);
        node.map_or(id, |node| label(&node.name, &node.id))
    }

    /// The graph for one evaluation: function nodes get what they may know.
    pub(crate) fn graph(&self, place: Where, draw: &Draw) -> Arc<GraphContent> {
        if place == Where::Realm {
            return self.realm.clone();
        }
        if self.functions.is_empty() {
            return self.graph.clone();
        }
        let mut graph = (*self.graph).clone();
        let mut modules = Vec::new();
        for function in &self.functions {
            let node = &graph.nodes[function.index];
            let text = function.source.ready(&node.id, draw);
            let content = match function.source {
                Source::Older(_) => FunctionNodeContent::Version1(text),
                Source::Module(_) => {
                    modules.push((text.clone(), text.clone()));
                    FunctionNodeContent::Version2(FunctionContent { source: text })
                }
            };
            graph.nodes[function.index] = Arc::new(DecisionNode {
                id: node.id.clone(),
                name: node.name.clone(),
                kind: DecisionNodeKind::FunctionNode { content },
            });
        }
        // Modules have lost their types already; what is listed here is not stripped again.
        graph.stripped_functions = Some(Arc::new(modules.into_iter().collect()));
        Arc::new(graph)
    }
}

/// The graph with its function nodes in the older form as nodes that run in realms.
fn in_realm(graph: &GraphContent) -> GraphContent {
    let mut graph = graph.clone();
    for node in &mut graph.nodes {
        let Some(FunctionNodeContent::Version1(source)) = function(node) else { continue };
        let content = CustomNodeContent { kind: realm::KIND.into(), config: Arc::new(source.as_ref().into()) };
        let kind = DecisionNodeKind::CustomNode { content };
        *node = Arc::new(DecisionNode { id: node.id.clone(), name: node.name.clone(), kind });
    }
    graph
}

fn function(node: &DecisionNode) -> Option<&FunctionNodeContent> {
    match &node.kind {
        DecisionNodeKind::FunctionNode { content } => Some(content),
        _ => None,
    }
}

struct Check<'a> {
    file: &'a str,
    expressions: Checker,
    seen: HashSet<(Arc<str>, bool)>,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn node(&mut self, node: &Arc<DecisionNode>, runtime: &Runtime) {
        let name = label(&node.name, &node.id);
        match &node.kind {
            DecisionNodeKind::InputNode { content } if content.schema.is_some() => self.schema(name, node, runtime),
            DecisionNodeKind::OutputNode { content } if content.schema.is_some() => self.schema(name, node, runtime),
            DecisionNodeKind::FunctionNode { content: FunctionNodeContent::Version1(source) } => {
                self.handler(name, source);
            }
            DecisionNodeKind::DecisionTableNode { content } => {
                self.around(name, &content.transform_attributes);
                for column in content.inputs.iter() {
                    if let Some(field) = &column.field {
                        self.expression(name, "the field of an input column", field, ExpressionKind::Standard);
                    }
                }
                for (i, row) in content.rules.iter().enumerate() {
                    let inputs = content.inputs.iter().map(|column| match &column.field {
                        Some(field) => (&column.id, field, ExpressionKind::Unary),
                        None => (&column.id, label_of(&column.name, &column.id), ExpressionKind::Standard),
                    });
                    let outputs =
                        content.outputs.iter().map(|column| (&column.id, &column.field, ExpressionKind::Standard));
                    for (id, column, kind) in inputs.chain(outputs) {
                        if let Some(cell) = row.get(id) {
                            self.expression(name, &format!("row {}, column {column}", i + 1), cell, kind);
                        }
                    }
                }
            }
            DecisionNodeKind::ExpressionNode { content } => {
                self.around(name, &content.transform_attributes);
                for expression in content.expressions.iter().filter(|e| !e.key.is_empty()) {
                    self.expression(name, &expression.key, &expression.value, ExpressionKind::Standard);
                }
            }
            DecisionNodeKind::SwitchNode { content } => {
                for statement in content.statements.iter() {
                    self.expression(name, "a condition", &statement.condition, ExpressionKind::Standard);
                }
            }
            DecisionNodeKind::DecisionNode { content } => self.around(name, &content.transform_attributes),
            _ => {}
        }
    }

    fn around(&mut self, name: &str, attributes: &TransformAttributes) {
        if let Some(field) = &attributes.input_field {
            self.expression(name, "the node's input field", field, ExpressionKind::Standard);
        }
    }

    /// Expressions that do not compile are left to fail, or silently not to match, in each evaluation by the engine.
    fn expression(&mut self, node: &str, place: &str, source: &Arc<str>, kind: ExpressionKind) {
        let unary = kind == ExpressionKind::Unary;
        if source.trim().is_empty() || self.seen.contains(&(source.clone(), unary)) {
            return;
        }
        match self.expressions.check(source, &kind) {
            Ok(()) => {
                self.seen.insert((source.clone(), unary));
            }
            Err(e) => {
                let message = format!("{place}: {} {}", shorten(source, 80), e.message);
                self.problems.push(Problem::new(self.file, message).field(node).fix(e.fix));
            }
        }
    }

    /// Asks the JavaScript engine what the source defines: nothing else reads JavaScript as it does.
    fn handler(&mut self, name: &str, source: &Arc<str>) {
        const WRITE: &str = "write function handler(input) {...}";
        const CORRECT: &str = "correct the source";
        let (message, fix) = match definition(source) {
            Ok(Definition::Function) => return,
            Ok(Definition::Other(kind)) if kind == "undefined" => ("it defines no handler".to_owned(), WRITE),
            Ok(Definition::Other(kind)) => (format!("its handler is no function but {kind}"), WRITE),
            Ok(Definition::Broken { words, line }) if module_syntax(source, &words, line) => {
                (format!("export and import cannot be used in this form of a function node ({words})"), WRITE)
            }
            Ok(Definition::Broken { words, .. }) => (format!("its source does not run: {words}"), CORRECT),
            Err(e) if e.contains("interrupted") => {
                ("its source runs for longer than 500ms before it defines anything".to_owned(), CORRECT)
            }
            Err(e) if e.contains(OUT_OF_MEMORY) => {
                (format!("its source needs more than {} MB of memory before it defines anything", BYTES >> 20), CORRECT)
            }
            Err(e) => (format!("its source does not run: {e}"), CORRECT),
        };
        self.problems.push(Problem::new(self.file, message).field(name).fix(fix));
    }

    /// Lets the engine build its validator. The engine does that in the first evaluation only.
    fn schema(&mut self, name: &str, node: &Arc<DecisionNode>, runtime: &Runtime) {
        let input = match node.kind {
            DecisionNodeKind::InputNode { .. } => node.clone(),
            _ => plain_input(),
        };
        let graph = chain(vec![input, node.clone()]);
        let answer = runtime.block_on(Decision::from(graph).evaluate(Variable::empty_object()));
        // What the validator says of a value begins with the value's path, or with a colon when it is about all of it.
        if let Err(e) = answer.map_err(|e| e.to_string())
            && !e.starts_with(['/', ':'])
        {
            let problem = Problem::new(self.file, format_args!("the schema is not valid: {e}"));
            self.problems.push(problem.field(name).fix("correct the schema; schemas are read as draft 7"));
        }
    }
}

fn label_of<'a>(name: &'a Arc<str>, id: &'a Arc<str>) -> &'a Arc<str> {
    if name.is_empty() { id } else { name }
}

fn plain_input() -> Arc<DecisionNode> {
    let kind = DecisionNodeKind::InputNode { content: Default::default() };
    Arc::new(DecisionNode { id: "weir input".into(), name: "input".into(), kind })
}

/// A graph of nodes in a row. The first one is there once only, even when it is given twice.
fn chain(mut nodes: Vec<Arc<DecisionNode>>) -> GraphContent {
    nodes.dedup_by(|a, b| a.id == b.id);
    let edges = nodes.windows(2).map(|pair| {
        Arc::new(zen_engine::model::DecisionEdge {
            id: pair[1].id.clone(),
            source_id: pair[0].id.clone(),
            target_id: pair[1].id.clone(),
            source_handle: None,
        })
    });
    let mut graph = GraphContent::default();
    graph.edges = edges.collect();
    graph.nodes = nodes;
    graph
}

/// What a source defines as its handler.
enum Definition {
    Function,
    Other(String),
    /// It throws, or is no JavaScript; the line of a syntax error.
    Broken {
        words: String,
        line: usize,
    },
}

/// What a source may take before it defines its handler, by CPU time.
const CPU: Duration = Duration::from_millis(500);
/// And of memory, whatever a ruleset's limits are: a file is checked once for all of them.
const BYTES: u64 = 64 << 20;

fn definition(source: &str) -> Result<Definition, String> {
    let limit = Limit { cpu: cpu_time().saturating_add(CPU), wall_ms: i64::MAX, bytes: BYTES };
    defined(&realm::definition(source, limit)?)
}

/// Reads what the script answers.
fn defined(json: &str) -> Result<Definition, String> {
    #[derive(Deserialize)]
    struct Answer {
        output: Found,
    }
    #[derive(Deserialize)]
    struct Found {
        kind: String,
        broken: Option<Broken>,
    }
    #[derive(Deserialize)]
    struct Broken {
        words: String,
        #[serde(default)]
        line: usize,
    }
    let answer: Answer = serde_json::from_str(json).map_err(|e| e.to_string())?;
    Ok(match answer.output {
        Found { broken: Some(Broken { words, line }), .. } => Definition::Broken { words, line },
        Found { kind, .. } if kind == "function" => Definition::Function,
        Found { kind, .. } => Definition::Other(kind),
    })
}

/// Whether a syntax error is that of a module: the engine says so of `export`, and of `import` only that it did not expect
/// what follows. Words a problem that is there in any case.
fn module_syntax(source: &str, words: &str, line: usize) -> bool {
    let line = line.checked_sub(1).and_then(|i| source.lines().nth(i));
    let first = line.and_then(|text| text.split(|c: char| !c.is_alphanumeric()).find(|w| !w.is_empty()));
    words.contains("keyword: export") || matches!(first, Some("export" | "import"))
}
