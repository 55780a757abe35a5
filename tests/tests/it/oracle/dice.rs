//! Random numbers that are a function of a seed: SplitMix64.

use super::{MINUTE, SECOND};

/// The least that a date of JavaScript tells apart.
const MILLI: i64 = SECOND / 1_000;

pub(super) struct Dice(u64);

impl Dice {
    /// Seeds of different `what` have nothing in common.
    pub fn new(what: &str, seed: u64) -> Self {
        let salt = what.bytes().fold(0_u64, |salt, byte| salt.wrapping_mul(257).wrapping_add(u64::from(byte)));
        let mut dice = Self(salt ^ seed.wrapping_mul(0xd134_2543_de82_ef95));
        dice.next();
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to `n` - 1.
    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(n).unwrap()).unwrap()
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// When the batches of a history are, the first on or off a minute.
pub(super) fn times(dice: &mut Dice) -> Vec<i64> {
    // from 2026-01-31T20:00Z over midnight to the next month
    let first = 1_769_889_600 * SECOND + i64::try_from(dice.below(600)).unwrap() * MINUTE;
    let mut at = first + dice.of(&[0, MILLI, 17 * SECOND, 30 * SECOND, MINUTE - MILLI]);
    let mut all = vec![at];
    for _ in 0..dice.of(&[0, 1, 1, 2]) {
        at += dice.of(&[MILLI, 10 * SECOND, 10 * SECOND, MINUTE, MINUTE + 1_500 * MILLI, 2 * MINUTE, 2 * MINUTE]);
        all.push(at);
    }
    all
}

/// The batch from which on a row is there.
pub(super) fn arrival(dice: &mut Dice, batches: usize) -> usize {
    if dice.one_in(8) { dice.below(batches) } else { 0 }
}
