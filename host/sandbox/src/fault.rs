//! From what wasmtime says to a fault that says whose it is, which limit it is about, and what to do.

use wasmtime::{Error, PoolConcurrencyLimitError, Trap};
use weir_model::{CallError, Fault, FaultKind, Retry};

use crate::call::Call;
use crate::limits::{exceeded, out_of_memory};
use crate::log::cut;

/// A guest's own words are cut to this many bytes.
const WORDS: usize = 4_096;

/// The guest ended itself.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the plugin called exit with {0}")]
pub struct Exit(pub u8);

/// The host's backstop, by wall clock: says nothing about the tenant.
pub fn deadline(call: &Call) -> Fault {
    Fault::host(
        FaultKind::Deadline,
        format_args!(
            "the plugin did not come back for {}, and its fuel is not used up; the machine may be overloaded",
            call.limits().deadline
        ),
    )
    .field("deadline")
}

/// The fault of a call that ended badly. `call` is what the store had when it did.
///
/// wasmtime has types for few of its refusals; the others are told apart by their texts, each of which a test provokes.
pub fn of_call(error: &Error, call: &mut Call) -> Fault {
    if let Some(fault) = typed(error) {
        return fault;
    }
    let limits = call.limits().clone();
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => {
            return exceeded(
                FaultKind::Cpu,
                "cpu_fuel",
                format_args!("the plugin needs more than {} units of fuel", limits.cpu_fuel),
            );
        }
        Some(Trap::Interrupt) => return deadline(call),
        Some(Trap::StackOverflow) => {
            return exceeded(
                FaultKind::Resources,
                "stack_bytes",
                format_args!("the plugin needs more than {} bytes of stack", limits.stack_bytes),
            )
            // wasmtime has one size for all stores, so no manifest can raise it.
            .fix("recurse less deeply; the stack has one size for all plugins of a host");
        }
        _ => {}
    }
    // A guest that was refused memory usually dies of it in its own way.
    if let Some(refused) = call.meter.refused() {
        return refused.clone();
    }
    let text = error.root_cause().to_string();
    if text.contains("fuel allocated for hostcalls has been exhausted") {
        return exceeded(
            FaultKind::HostCallBytes,
            "host_call_bytes",
            format_args!("the plugin passes more than {} bytes in one call", limits.host_call_bytes),
        );
    }
    if text.contains("handle limit exceeded") {
        return handles(limits.handles);
    }
    if text.contains("instance count too high") {
        return exceeded(
            FaultKind::Resources,
            "instances",
            format_args!("the plugin has more than {} core instances", limits.instances),
        );
    }
    if text.contains("exceeds memory limits") {
        return out_of_memory(&limits);
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return Fault::host(
            FaultKind::Resources,
            format_args!("more calls at once than the sandbox is set up for: {text}"),
        );
    }
    call.log.flush();
    let said = call.log.tail().map(|tail| format!(": {tail}"));
    let said = said.unwrap_or_default();
    let fault = match error.downcast_ref::<Trap>() {
        Some(trap) => Fault::tenant(FaultKind::Trap, format_args!("the plugin trapped ({trap}){said}")),
        None => Fault::tenant(FaultKind::Trap, format_args!("the plugin was stopped ({text}){said}")),
    };
    fault.fix("look at the plugin's log; catch what it did not expect")
}

/// Too many live resources.
pub fn handles(most: u64) -> Fault {
    exceeded(FaultKind::Resources, "handles", format_args!("the plugin holds more than {most} handles"))
}

fn typed(error: &Error) -> Option<Fault> {
    if let Some(fault) = error.downcast_ref::<Fault>() {
        return Some(fault.clone());
    }
    match error.downcast_ref::<CallError>()? {
        CallError::Fault(fault) => Some(fault.clone()),
        CallError::Data(data) => Some(unseen(data)),
    }
}

/// A data error where the interface has no way to return one: the guest is stopped.
fn unseen(data: &weir_model::DataError) -> Fault {
    Fault::tenant(FaultKind::PluginData, format_args!("the plugin was stopped by a data error: {data}"))
}

/// What the plugin itself answered.
pub fn answered(kind: FaultKind, words: &str) -> Fault {
    let words = cut(words, WORDS);
    let fix = match kind {
        FaultKind::PluginConfig => "correct the configuration that it names",
        FaultKind::PluginInput => "correct the rows that it names, or let the plugin reject them",
        FaultKind::PluginData => "handle this error in the plugin, or correct what it asks for",
        _ => "look at the plugin's log",
    };
    Fault::tenant(kind, words).retry(Retry::Never).fix(fix)
}
