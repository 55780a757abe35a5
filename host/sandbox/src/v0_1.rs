//! Version 0.1 of the interface, `wit/v0_1`: names of the WIT on one side, the host's own types on the other.
//!
//! [`batch`] is what a plugin asks of its batch and what it leaves there, [`frame`] and [`writer`] are columns out of
//! and into Arrow, [`ask`] is queries and rules, [`state`] the plugin's memory,
//! [`table`] the handles. A later version gets a module beside this one.

mod ask;
mod batch;
mod convert;
mod frame;
mod state;
mod table;
mod writer;

use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Result, Store};
use weir_model::port::{Description, Verdict};
use weir_model::{CallError, Fault, FaultKind};

use crate::call::Call;
use crate::fault;

pub use batch::Batch;

/// What `bindgen!` makes of the WIT.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
mod bindings {
    wasmtime::component::bindgen!({
        path: "../../wit/v0_1",
        world: "detector",
        imports: { default: trappable },
        with: {
            "weir:detect/batches.frame": super::table::FrameHandle,
            "weir:detect/batches.query": super::table::QueryHandle,
            "weir:detect/batches.rule": super::table::RuleHandle,
            "weir:detect/batches.state": super::table::StateHandle,
            "weir:detect/batches.writer": super::table::WriterHandle,
            "weir:detect/batches.batch": super::table::BatchHandle,
        },
        trappable_error_type: {
            "weir:detect/types.fault" => weir_model::CallError,
        },
        require_store_data_send: true,
    });
}

use bindings::weir::detect::types;

/// A component whose imports and exports are found and have the right types.
pub struct Linked(bindings::DetectorPre<Call>);

/// Links a component.
pub fn link(linker: &Linker<Call>, component: &Component) -> Result<Linked> {
    Ok(Linked(bindings::DetectorPre::new(linker.instantiate_pre(component)?)?))
}

/// Adds the host's side of the interface.
pub fn add_to_linker(linker: &mut Linker<Call>) -> Result<()> {
    bindings::Detector::add_to_linker::<Call, HasSelf<Call>>(linker, |call| call)
}

/// An instance of a plugin.
pub struct Plugin(bindings::Detector);

impl Linked {
    /// Makes an instance in a store.
    pub fn instantiate(&self, store: &mut Store<Call>) -> Result<Plugin> {
        Ok(Plugin(self.0.instantiate(store)?))
    }
}

impl Plugin {
    /// What the plugin says of itself, or what is wrong with it.
    pub fn describe(&self, store: &mut Store<Call>) -> Result<std::result::Result<Description, Vec<String>>> {
        let said = self.0.weir_detect_plugin().call_describe(store)?;
        Ok(convert::description(said))
    }

    /// Prepares the instance. The inner error is the plugin's own.
    pub fn prepare(&self, store: &mut Store<Call>, config: &str) -> Result<std::result::Result<(), Fault>> {
        let answer = self.0.weir_detect_plugin().call_prepare(&mut *store, config)?;
        Ok(answer.map_err(|said| answered(said, store.data())))
    }

    /// Judges the batch. The inner error is the plugin's own.
    pub fn detect(&self, store: &mut Store<Call>) -> Result<std::result::Result<Verdict, Fault>> {
        let batch = store.data_mut().hand_over_batch()?;
        let answer = self.0.weir_detect_plugin().call_detect(&mut *store, batch)?;
        Ok(answer.map(convert::verdict).map_err(|said| answered(said, store.data())))
    }
}

fn answered(said: types::Fault, call: &Call) -> Fault {
    match said {
        types::Fault::Config(words) => fault::answered(FaultKind::PluginConfig, &words),
        types::Fault::Input(words) => fault::answered(FaultKind::PluginInput, &words),
        types::Fault::Internal(words) => fault::answered(FaultKind::PluginInternal, &words),
        types::Fault::Data(error) => {
            let error = weir_model::DataError::from(error).to_string();
            // The interface has no room for what the call was about. The SDK logs it last: `column 'n' of query 'q': ...`.
            let about = call.log.last_error().filter(|line| line.contains(&error));
            let about = about.unwrap_or(&error);
            fault::answered(FaultKind::PluginData, &format!("it did not handle a data error: {about}"))
        }
    }
}

impl types::Host for Call {
    /// What a host function answers: a data error is the guest's to see, a fault ends the call.
    fn convert_fault(&mut self, error: CallError) -> Result<types::Fault> {
        match error {
            CallError::Data(error) => Ok(types::Fault::Data(error.into())),
            CallError::Fault(fault) => Err(fault.into()),
        }
    }
}
