//! The text that a function node runs as.
//!
//! The engine compiles a node's source anew for each evaluation, in a runtime of its own, so the source is where time and
//! seed can be given without the handler seeing them in its input. `script/handler.js` gets them as arguments, replaces
//! the clock and `Math.random`, evaluates the node's source and puts itself in the place of what the engine calls.
//!
//! It also reports whether clock or randomness were used. A run that used neither is a function of its input: nothing
//! survives in a runtime that is made for one run.

use std::sync::{Arc, LazyLock};

use weir_model::Digest;

use crate::value::quoted;

/// What a handler throws when the evaluation had used up its time before the node began.
pub(crate) const OUT_OF_TIME: &str = "weir:rule_time";

static CLOCK: LazyLock<String> = LazyLock::new(|| code(include_str!("script/clock.js")));
static DATE: LazyLock<String> = LazyLock::new(|| quoted(&code(include_str!("script/date.js"))));
static OLDER: LazyLock<String> = LazyLock::new(|| {
    let handler = code(include_str!("script/handler.js"));
    format!("{handler}({},{},", *CLOCK, *DATE)
});

/// A script without its comments: it is compiled in every evaluation.
fn code(text: &str) -> String {
    text.lines()
        .filter(|line| !line.starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// What a node may know beside its input, and until when it may start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draw {
    /// Milliseconds since 1970.
    pub(crate) time_ms: i64,
    /// Of this evaluation.
    pub(crate) seed: Digest,
    /// On the machine's monotonic clock, in milliseconds.
    pub(crate) limit_ms: i64,
}

impl Draw {
    /// `time,a,b,c,d` of one node.
    fn arguments(&self, node: &str) -> String {
        let seed = Digest::of_parts([&self.seed.0[..], node.as_bytes()]).0;
        let word = |i: usize| u32::from_le_bytes([seed[i], seed[i + 1], seed[i + 2], seed[i + 3]]);
        let Self { time_ms, .. } = self;
        format!("{time_ms},{},{},{},{}", word(0), word(4), word(8), word(12))
    }
}

/// The source of a node, ready to be put into a script.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// Older form: a JSON string with the source.
    Older(Arc<str>),
    /// Module form: JavaScript without types.
    Module(Arc<str>),
}

impl Source {
    pub(crate) fn older(source: &str) -> Self {
        Self::Older(quoted(source).into())
    }

    /// The text for one evaluation.
    pub(crate) fn ready(&self, node: &str, draw: &Draw) -> Arc<str> {
        let arguments = draw.arguments(node);
        match self {
            Self::Older(literal) => {
                format!("{}{literal},{arguments},{},0)", *OLDER, draw.limit_ms).into()
            }
            Self::Module(source) => {
                let clock = &*CLOCK;
                let date = &*DATE;
                format!("({clock})({date},{arguments},()=>\"\");{source}").into()
            }
        }
    }

    /// The text that answers what the source defines instead of running it: `{kind, broken: {words, line}}`,
    /// `line` being that of a syntax error.
    pub(crate) fn definition(source: &str) -> Arc<str> {
        let literal = quoted(source);
        format!("{}{literal},0,0,0,0,0,{},1)", *OLDER, i64::MAX).into()
    }
}
