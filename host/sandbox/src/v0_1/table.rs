//! Handles of one call. Their numbers only rise: a guest may drop a handle late, or keep one that the host has swept,
//! and must never hit something newer by it.

use std::sync::Arc;

use weir_model::{Fault, FaultKind};

use super::ask::{Query, Rule};
use super::frame::Frame;
use super::writer::Writer;
use crate::fault::handles;

/// Types of handles. There is nothing in them: what a number stands for is in the [`Table`].
pub enum FrameHandle {}
/// See [`FrameHandle`].
pub enum QueryHandle {}
/// See [`FrameHandle`].
pub enum RuleHandle {}
/// See [`FrameHandle`].
pub enum StateHandle {}
/// See [`FrameHandle`].
pub enum WriterHandle {}
/// See [`FrameHandle`].
pub enum BatchHandle {}

/// What a handle stands for.
#[derive(Debug)]
pub enum Held {
    /// Columns.
    Frame(Arc<Frame>),
    /// A query and what is bound to it.
    Query(Box<Query>),
    /// A rule and what is bound to it.
    Rule(Box<Rule>),
    /// Columns in the making.
    Writer(Box<Writer>),
    /// The plugin's state; the batch knows it.
    State,
    /// The batch.
    Batch,
}

/// All handles, by number.
#[derive(Debug, Default)]
pub struct Table {
    held: Vec<Option<Held>>,
    live: u64,
}

impl Table {
    /// Gives out a new number.
    pub fn add(&mut self, held: Held, most: u64) -> Result<u32, Fault> {
        if self.live >= most {
            return Err(handles(most));
        }
        let number = u32::try_from(self.held.len()).map_err(|_| handles(most))?;
        self.held.push(Some(held));
        self.live += 1;
        Ok(number)
    }

    /// What a number stands for.
    pub fn get(&self, number: u32) -> Option<&Held> {
        self.held.get(number as usize)?.as_ref()
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Held> {
        self.held.get_mut(number as usize)?.as_mut()
    }

    /// Forgets a number. One that is forgotten already, or was never given out, is no error.
    pub fn remove(&mut self, number: u32) {
        if let Some(slot) = self.held.get_mut(number as usize)
            && slot.take().is_some()
        {
            self.live -= 1;
        }
    }

    /// Forgets everything; numbers go on rising.
    pub fn sweep(&mut self) {
        self.held.iter_mut().for_each(|slot| *slot = None);
        self.live = 0;
    }
}

/// The guest uses a handle that it dropped, or that was swept.
pub fn stale() -> Fault {
    Fault::tenant(FaultKind::Trap, "the plugin uses a handle from an earlier call")
        .fix("keep no frame, query, rule or writer beyond the call that it came from")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_never_used_again() {
        let mut table = Table::default();
        let first = table.add(Held::State, 2).expect("room");
        table.remove(first);
        table.remove(first);
        let second = table.add(Held::State, 2).expect("room");
        table.sweep();
        table.remove(second);
        let third = table.add(Held::State, 2).expect("room");
        assert_eq!((first, second, third), (0, 1, 2));
        assert!(table.get(first).is_none() && table.get(second).is_none());
        assert!(table.get(third).is_some() && table.get(99).is_none());
        table.remove(99);
    }

    #[test]
    fn only_live_handles_count() {
        let mut table = Table::default();
        for _ in 0..10 {
            let number = table.add(Held::State, 1).expect("room");
            assert_eq!(table.add(Held::State, 1).expect_err("full").field.as_deref(), Some("handles"));
            table.remove(number);
        }
    }
}
