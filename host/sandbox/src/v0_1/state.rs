//! Keyed state: bounded in what one call may bring, as keys of a few bytes can stand for values of gigabytes.

use std::sync::Arc;

use wasmtime::Result;
use wasmtime::component::Resource;
use weir_model::port::BatchHost;
use weir_model::{CallError, DataError, Fault};

use super::bindings::weir::detect::batches::{Blobs, HostState};
use super::table::{Held, StateHandle, stale};
use crate::call::Call;
use crate::columns;

type Answer<T> = std::result::Result<T, CallError>;

/// Entries that are asked for at once, at most.
const CHUNK: u64 = 1_024;

fn checked(blobs: Blobs) -> Answer<columns::Blobs> {
    let blobs = columns::Blobs::from(blobs);
    blobs.check()?;
    Ok(blobs)
}

impl Call {
    fn on_state(&mut self, handle: &Resource<StateHandle>) -> std::result::Result<Arc<dyn BatchHost>, Fault> {
        self.enter()?;
        match self.batch.table.get(handle.rep()) {
            Some(Held::State) => self.host().cloned(),
            _ => Err(stale()),
        }
    }

    /// How many entries can be asked for at once, if each is as large as it may be and there is room for all. Keys of a
    /// few bytes could otherwise bring values of gigabytes.
    fn state_chunk(&self) -> usize {
        let limits = self.limits();
        let entry = limits.state_key_bytes + limits.state_value_bytes;
        (self.meter.room() / entry.max(1)).clamp(1, CHUNK) as usize
    }
}

impl HostState for Call {
    fn get_many(&mut self, state: Resource<StateHandle>, keys: Blobs) -> Result<(Vec<u8>, Blobs)> {
        let host = self.on_state(&state)?;
        let keys = checked(keys)?;
        self.meter.work(keys.data.len() as u64 + 64 * keys.len() as u64)?;
        let max = self.meter.room();
        let mut present = Vec::with_capacity(keys.len());
        let mut values = columns::Blobs::with_capacity(keys.len(), 0);
        let keys: Vec<&[u8]> = keys.iter().collect();
        for some in keys.chunks(self.state_chunk()) {
            for value in host.state_get(some)? {
                present.push(u8::from(value.is_some()));
                values.push(value.as_deref().unwrap_or_default(), max).map_err(|e| self.column_error(e))?;
            }
        }
        self.meter.work(values.data.len() as u64)?;
        self.arm();
        Ok((present, values.into()))
    }

    fn put_many(
        &mut self,
        state: Resource<StateHandle>,
        keys: Blobs,
        values: Blobs,
        ttl_seconds: Option<u64>,
    ) -> Result<()> {
        let host = self.on_state(&state)?;
        let (keys, values) = (checked(keys)?, checked(values)?);
        if keys.len() != values.len() {
            let expected = u32::try_from(keys.len()).unwrap_or(u32::MAX);
            return Err(CallError::from(DataError::Uneven(expected)).into());
        }
        // The batch holds them until it commits. A key that is put again counts again.
        let bytes = (keys.data.len() + values.data.len() + 64 * keys.len()) as u64;
        self.meter.work(bytes)?;
        let charge = self.meter.hold(bytes)?;
        self.batch.charges.push(charge);
        let entries: Vec<(&[u8], &[u8])> = keys.iter().zip(values.iter()).collect();
        host.state_put(&entries, ttl_seconds)?;
        self.arm();
        Ok(())
    }

    fn delete_many(&mut self, state: Resource<StateHandle>, keys: Blobs) -> Result<()> {
        let host = self.on_state(&state)?;
        let keys = checked(keys)?;
        let bytes = (keys.data.len() + 64 * keys.len()) as u64;
        self.meter.work(bytes)?;
        let charge = self.meter.hold(bytes)?;
        self.batch.charges.push(charge);
        host.state_delete(&keys.iter().collect::<Vec<_>>())?;
        self.arm();
        Ok(())
    }

    fn scan(
        &mut self,
        state: Resource<StateHandle>,
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: u32,
    ) -> Result<(Blobs, Blobs)> {
        let host = self.on_state(&state)?;
        let max = self.meter.room() / 2;
        let mut keys = columns::Blobs::with_capacity(0, 0);
        let mut values = columns::Blobs::with_capacity(0, 0);
        let mut after = after;
        while keys.len() < limit as usize {
            let ask = self.state_chunk().min(limit as usize - keys.len());
            let some = host.state_scan(&prefix, after.as_deref(), u32::try_from(ask)?)?;
            let mut push = || {
                for (key, value) in &some {
                    keys.push(key, max)?;
                    values.push(value, max)?;
                }
                Ok(())
            };
            push().map_err(|e| self.column_error(e))?;
            let bytes = some.iter().map(|(k, v)| k.len() + v.len() + 64);
            self.meter.work(64 + bytes.sum::<usize>() as u64)?;
            let ended = some.len() < ask;
            after = some.into_iter().next_back().map(|(key, _)| key);
            if ended {
                break;
            }
        }
        self.arm();
        Ok((keys.into(), values.into()))
    }

    fn drop(&mut self, state: Resource<StateHandle>) -> Result<()> {
        self.batch.table.remove(state.rep());
        Ok(())
    }
}
