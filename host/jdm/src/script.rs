//! The text that a function node runs as.
//!
//! The engine compiles a node's source anew for each evaluation, in a runtime of its own, so the source is where time and
//! seed can be given without the handler seeing them in its input. `script/handler.js` gets them as arguments, puts its
//! own clock and `Math.random` in place, evaluates the node's source and puts itself in the place of what the engine calls.
//!
//! Sources in the older form run in a realm of ours instead (`realm.rs`), unless the rule has nodes in module form too, by the
//! same script, which gets the clock after the node's source has run where that has not looked for one.
//!
//! Without a clock the script is shorter, and a run that looks for one fails with [`CLOCK_WANTED`]. A run that does not
//! fail so is a function of its input: nothing survives in a runtime that is made for one run.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use weir_model::Digest;

use crate::value::quoted;

/// What a run fails with when the evaluation had used up its time before the node began.
pub(crate) const OUT_OF_TIME: &str = "weir:rule_time";
/// What a run without a clock fails with when it looks for the time or a random number, whatever its source catches.
pub(crate) const CLOCK_WANTED: &str = "weir:clock";
/// What a run in a realm without libraries fails with when it looks for one.
pub(crate) const LIBRARIES_WANTED: &str = "weir:libraries";

static HANDLER: LazyLock<String> = LazyLock::new(|| code(include_str!("script/handler.js")));
static CLOCK: LazyLock<String> = LazyLock::new(|| {
    let clock = code(include_str!("script/clock.js"));
    let date = quoted(&code(include_str!("script/date.js")));
    format!("({clock})({date})(")
});
/// The value of a script's module, without comments: it is compiled in every evaluation, which takes 70 us a kilobyte.
fn code(text: &str) -> String {
    let text = text.strip_prefix("export default ").unwrap_or(text);
    text.lines().filter(|line| !line.starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// What nodes may know beside their input, and until when they may start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draw {
    /// None: a function node that looks for one ends the evaluation.
    pub(crate) clock: Option<Clock>,
    /// On the machine's monotonic clock, in milliseconds.
    pub(crate) limit_ms: i64,
    /// Until which CPU time of this thread nodes may run.
    pub(crate) limit_cpu: Duration,
}

/// Time and randomness of one evaluation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// Milliseconds since 1970.
    pub(crate) time_ms: i64,
    /// Of this evaluation.
    pub(crate) seed: Digest,
}

impl Clock {
    /// What the random numbers of a node begin with.
    pub(crate) fn words(&self, node: &str) -> [u32; 4] {
        let seed = Digest::of_parts([&self.seed.0[..], node.as_bytes()]).0;
        [0, 4, 8, 12].map(|i| u32::from_le_bytes([seed[i], seed[i + 1], seed[i + 2], seed[i + 3]]))
    }

    /// The clock as JavaScript, for one node.
    fn script(&self, node: &str) -> String {
        let (clock, time) = (&*CLOCK, self.time_ms);
        let [a, b, c, d] = self.words(node);
        format!("{clock}{time},{a},{b},{c},{d})")
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
        let clock = draw.clock.map(|clock| clock.script(node));
        match self {
            Self::Older(literal) => {
                let clock = clock.as_deref().unwrap_or("0");
                format!("{}({literal},{},{clock})", *HANDLER, draw.limit_ms).into()
            }
            Self::Module(source) => match clock {
                Some(clock) => format!(
                    "{{const[get,draw]={clock}(()=>\"\");\
                     Object.defineProperty(globalThis,\"Date\",{{configurable:true,get}});Math.random=draw}}{source}"
                )
                .into(),
                None => source.clone(),
            },
        }
    }
}
