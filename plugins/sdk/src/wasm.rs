//! The exports of a component, and the host behind the WIT, by wit-bindgen.

use std::cell::OnceCell;
use std::sync::Once;

use crate::log::Level;
use crate::{Batch, Detector, Fault};
pub use bindings::exports::weir::detect::plugin;
use bindings::weir::detect::log;
pub use bindings::weir::detect::{batches, types};

pub use bindings::__export_detector;
pub use bindings::exports::weir::detect::plugin::Guest;

mod convert;
pub(crate) mod handles;

/// What wit-bindgen makes of the WIT.
#[allow(unsafe_code, missing_docs, clippy::all)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit/v0_1",
        world: "detector",
        pub_export_macro: true,
        export_macro_name: "__export_detector",
        default_bindings_module: "weir_sdk::wasm::bindings",
    });
}

/// `describe` of a component.
pub fn describe<D: Detector>() -> plugin::Description {
    report_panics();
    D::describe().into()
}

/// `prepare` of a component.
pub fn prepare<D: Detector>(prepared: &OnceCell<D>, config: &str) -> Result<(), types::Fault> {
    report_panics();
    let detector = D::prepare(config).map_err(leave)?;
    prepared.set(detector).map_err(|_| types::Fault::Internal("prepare was called twice".to_owned()))
}

/// `detect` of a component.
pub fn detect<D: Detector>(prepared: &OnceCell<D>, batch: batches::Batch) -> Result<plugin::Verdict, types::Fault> {
    let detector = prepared.get().ok_or_else(|| types::Fault::Internal("prepare was not called".to_owned()))?;
    let verdict = detector.detect(&Batch::on(handles::BatchHandle::new(batch))).map_err(leave)?;
    Ok(verdict.into())
}

/// A fault on its way out. The interface has no room for what a refused call was about, the log has.
fn leave(fault: Fault) -> types::Fault {
    if let Fault::Data { about, .. } = &fault
        && !about.is_empty()
    {
        crate::log::error(fault.to_string());
    }
    fault.into()
}

/// A panic ends the instance without a word to the host: say it before.
fn report_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        std::panic::set_hook(Box::new(|panic| crate::log::error(panic.to_string())));
    });
}

pub(crate) fn log(level: Level, message: &str) {
    let level = match level {
        Level::Debug => log::Level::Debug,
        Level::Info => log::Level::Info,
        Level::Warn => log::Level::Warn,
        Level::Error => log::Level::Error,
    };
    log::write(level, message);
}
