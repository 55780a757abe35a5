//! Write a weir detector in Rust.
//!
//! A detector looks at one micro-batch after the other and says what is wrong: it runs queries, asks rules, keeps state,
//! writes rows and raises alarms. It is a type with three functions and one line that makes a component of it:
//!
//! ```
//! use weir_sdk::{Alarm, Batch, Description, Detector, Fault, Kind::*, Severity, Verdict, config};
//!
//! #[derive(serde::Deserialize)]
//! struct SlowHosts { limit: f64 }
//!
//! impl Detector for SlowHosts {
//!     fn describe() -> Description {
//!         Description::new("slow-hosts", env!("CARGO_PKG_VERSION"))
//!             .query("latencies")
//!             .output("slow_hosts", |o| o.column("at", Timestamp).column("host", Text).column("millis", Float64))
//!             .alarm("slow_host", ["host"])
//!     }
//!     fn prepare(json: &str) -> Result<Self, Fault> {
//!         config(json)
//!     }
//!     fn detect(&self, b: &Batch) -> Result<Verdict, Fault> {
//!         let latencies = b.query("latencies").bind("to", b.time()).run()?;
//!         let (hosts, millis) = (latencies.texts("host")?, latencies.float64s("millis")?);
//!         let slow: Vec<usize> = (0..latencies.rows()).filter(|row| millis[*row] > self.limit).collect();
//!
//!         let hits = latencies.take(&slow)?;
//!         b.output("slow_hosts")
//!             .copy("host", &hits, "host")?
//!             .copy("millis", &hits, "millis")?
//!             .fill([("at", b.time())], hits.rows())?
//!             .finish()?;
//!         b.alarms(slow.iter().map(|row| {
//!             Alarm::raise("slow_host", [&hosts[*row]], Severity::Major)
//!                 .message(format!("{} answers in {} ms", &hosts[*row], millis[*row]))
//!                 .because(latencies.row(*row))
//!         }))?;
//!         Ok(Verdict::Judged)
//!     }
//! }
//! weir_sdk::export!(SlowHosts);
//!
//! // cargo test: the same code over fixtures, see `testkit`
//! use weir_sdk::testkit::{Kit, Rows};
//! let mut kit = Kit::<SlowHosts>::new(r#"{"limit": 100}"#);
//! kit.answer("latencies", Rows::new().column("host", Text, ["a", "b"]).column("millis", Float64, [20.0, 120.0]));
//! let report = kit.run("2026-11-30T12:04:00Z")?;
//! assert_eq!(report.alarms[0].message, "b answers in 120 ms");
//! # Ok::<(), Fault>(())
//! ```
//!
//! Build it with `cargo build --release --target wasm32-wasip2` as a `cdylib`; the `.wasm` is the component. What the host
//! promises and expects stands in `wit/README.md`.

mod alarm;
pub mod assets;
pub mod backend;
mod batch;
mod call;
mod column;
mod describe;
mod fault;
mod frame;
pub mod log;
pub mod state;
#[cfg(not(target_family = "wasm"))]
pub mod testkit;
mod time;
mod types;
#[cfg(target_family = "wasm")]
#[doc(hidden)]
pub mod wasm;
pub mod writer;

pub use alarm::{Action, Alarm};
pub use batch::Batch;
pub use call::{Answer, Query, Rule};
pub use column::{Bytes, Column, DecimalColumn, Dictionary, Texts, Validity};
pub use describe::{AlarmType, Description, Output};
pub use fault::{DataError, Fault};
pub use frame::Frame;
pub use state::State;
pub use time::{MINUTE, Time};
pub use types::{Blobs, Bounds, Decimals, Field, Kind, Named, RowFault, RowRef, Scalar, Severity, Verdict};
pub use writer::Writer;

/// A detector. The host makes a fresh instance for every batch: `prepare`, then `detect`, once. What must survive goes
/// into [`Batch::state`].
pub trait Detector: Sized + 'static {
    /// What it is and everything it may ask for. Called once for each component, with nothing granted; must answer the
    /// same always.
    fn describe() -> Description;
    /// Reads the scenario's configuration, a JSON object, and what else is the same for all batches, such as
    /// [`assets`]. Its clock stands still. Called in every instance, so keep it short.
    fn prepare(config: &str) -> Result<Self, Fault>;
    /// Judges one batch. The same batch must come out the same, so nothing may depend on anything but `b` and what
    /// `prepare` made. A fault ends the batch: nothing of it counts.
    fn detect(&self, b: &Batch) -> Result<Verdict, Fault>;
}

/// Reads a configuration. What does not fit the type is a [`Fault::Config`] that says where; refuse what you do not know
/// with `#[serde(deny_unknown_fields)]`.
pub fn config<T: serde::de::DeserializeOwned>(json: &str) -> Result<T, Fault> {
    serde_json::from_str(json).map_err(Fault::config)
}

/// Makes a component of a crate: its exports call this detector. Once in a crate of type `cdylib`.
#[macro_export]
macro_rules! export {
    ($detector:ty) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            ::std::thread_local! {
                static PREPARED: ::std::cell::OnceCell<$detector> =
                    const { ::std::cell::OnceCell::new() };
            }
            struct Component;
            impl $crate::wasm::Guest for Component {
                fn describe() -> $crate::wasm::plugin::Description {
                    $crate::wasm::describe::<$detector>()
                }
                fn prepare(config: ::std::string::String) -> ::std::result::Result<(), $crate::wasm::types::Fault> {
                    PREPARED.with(|prepared| $crate::wasm::prepare(prepared, &config))
                }
                fn detect(
                    batch: $crate::wasm::batches::Batch,
                ) -> ::std::result::Result<$crate::wasm::plugin::Verdict, $crate::wasm::types::Fault> {
                    PREPARED.with(|prepared| $crate::wasm::detect(prepared, batch))
                }
            }
    $crate::wasm::__export_detector!(Component with_types_in $crate::wasm::bindings);
        };
        #[cfg(not(target_family = "wasm"))]
        const _: () = {
            const fn is_detector<D: $crate::Detector>() {}
            is_detector::<$detector>();
        };
    };
}
