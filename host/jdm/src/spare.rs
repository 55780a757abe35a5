//! Realms that wait on each thread, blank or with a source that has run in them, and the used ones that wait to be freed.
//!
//! A thread remembers the sources that it ran lately. While nobody waits it loads each of them into a realm, and more than
//! one where an earlier call took more; the rest of its realms are blank. What is remembered decides how long an evaluation
//! takes, never what it answers.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::realm::{Limit, Realm, cpu_time};

/// Realms that wait on each thread, some 200 kB each: an evaluation of more rows makes the rest as it goes.
const SPARES: usize = 8;
/// How many of them may be loaded.
const LOADED: usize = 6;
/// Sources that a thread remembers.
const LATELY: usize = 16;
/// After how many times of tidying up a source that was not used is forgotten.
const FORGET: u64 = 64;
/// A source that runs for longer than this before it defines its handler is not loaded ahead: who comes then waits.
const CPU: Duration = Duration::from_millis(5);
/// Nor is one that allocates more.
pub(crate) const BYTES: usize = 512 << 10;
/// A used realm that has more is not kept until later, but freed at once.
const LARGE: usize = 1 << 20;

thread_local! {
    static STOCK: RefCell<Stock> = const { RefCell::new(Stock::new()) };
}

/// A realm in which this source has run, and that nothing else has happened to.
pub(crate) fn loaded(source: &str) -> Option<Realm> {
    STOCK.with_borrow_mut(|stock| {
        let at = stock.loaded.iter().position(|(of, _)| **of == *source)?;
        let (_, realm) = stock.loaded.swap_remove(at);
        stock.use_again(source);
        Some(realm)
    })
}

/// A realm in which nothing has run.
pub(crate) fn blank() -> Result<Realm, String> {
    STOCK.with_borrow_mut(|stock| stock.blank.pop()).map_or_else(Realm::new, Ok)
}

/// Whether the source is not known to look for a clock or a library as it runs.
pub(crate) fn may_run_early(source: &str) -> bool {
    STOCK.with_borrow_mut(|stock| stock.use_again(source) != Some(Way::Late))
}

/// Remembers whether a source may run before there is a clock, how long it took, and how long it may take to be run ahead.
pub(crate) fn note(source: &str, early: bool, took: Duration, most: Duration) {
    let way = match early {
        true if took <= CPU.min(most) => Way::Ahead,
        true => Way::Early,
        false => Way::Late,
    };
    STOCK.with_borrow_mut(|stock| stock.remember(source, way));
}

/// Takes a realm that an evaluation has used.
pub(crate) fn used(realm: Realm) {
    STOCK.with_borrow_mut(|stock| {
        if stock.used.len() < SPARES && realm.bytes() <= LARGE {
            stock.used.push(realm);
        }
    });
}

/// How many were used and not yet freed.
pub(crate) fn unfreed() -> usize {
    STOCK.with_borrow(|stock| stock.used.len())
}

/// One step of what is put off while someone waits: a used realm is freed, one is loaded, or one is made. False: there is
/// nothing to do. `wanted` is how many realms a call has taken.
pub(crate) fn tidy(wanted: usize) -> bool {
    STOCK.with_borrow_mut(|stock| stock.tidy(wanted))
}

/// How a source is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Ahead, before there is an input.
    Ahead,
    /// Before it gets its input, but not ahead.
    Early,
    /// With the clock there from the beginning.
    Late,
}

/// A source that was used lately.
#[derive(Debug)]
struct Lately {
    source: Arc<str>,
    way: Way,
    /// In which spell it was used last, and how often then.
    spell: u64,
    uses: usize,
}

/// What a thread has.
struct Stock {
    blank: Vec<Realm>,
    loaded: Vec<(Arc<str>, Realm)>,
    used: Vec<Realm>,
    /// The most recent first.
    lately: VecDeque<Lately>,
    /// A spell is what lies between two times of tidying up.
    spell: u64,
    /// Whether something was used in this spell.
    busy: bool,
}

impl Stock {
    const fn new() -> Self {
        Self { blank: Vec::new(), loaded: Vec::new(), used: Vec::new(), lately: VecDeque::new(), spell: 0, busy: false }
    }

    /// Counts one more use of a source, and answers how it is run if that is known.
    fn use_again(&mut self, source: &str) -> Option<Way> {
        self.busy = true;
        let at = self.lately.iter().position(|known| *known.source == *source)?;
        let mut known = self.lately.remove(at)?;
        if known.spell != self.spell {
            (known.spell, known.uses) = (self.spell, 0);
        }
        known.uses += 1;
        let way = known.way;
        self.lately.push_front(known);
        Some(way)
    }

    fn remember(&mut self, source: &str, way: Way) {
        if let Some(known) = self.lately.iter_mut().find(|known| *known.source == *source) {
            // What took long once took long: it is not measured anew until it is forgotten.
            if known.way == Way::Ahead {
                known.way = way;
            }
            return;
        }
        let spell = self.spell;
        self.lately.truncate(LATELY - 1);
        self.lately.push_front(Lately { source: source.into(), way, spell, uses: 1 });
    }

    fn tidy(&mut self, wanted: usize) -> bool {
        if self.busy {
            self.busy = false;
            self.spell += 1;
            let spell = self.spell;
            self.lately.retain(|known| spell - known.spell <= FORGET);
        }
        self.used.pop().is_some() || self.give_way() || self.load() || self.make(wanted)
    }

    /// Frees a realm with a source that was not used lately.
    fn give_way(&mut self) -> bool {
        let lately = &self.lately;
        let Some(at) = self.loaded.iter().position(|(of, _)| !lately.iter().any(|known| known.source == *of)) else {
            return false;
        };
        self.loaded.swap_remove(at);
        true
    }

    /// Loads one realm: first one with each source, then more of those that were used more often in one spell.
    fn load(&mut self) -> bool {
        let Some(next) = (1..=LOADED).find_map(|n| {
            let lacks = |known: &Lately| known.way == Way::Ahead && known.uses >= n && self.having(&known.source) < n;
            self.lately.iter().position(lacks)
        }) else {
            return false;
        };
        let source = self.lately[next].source.clone();
        if self.loaded.len() >= LOADED {
            let Some(at) = self.loaded.iter().position(|(of, _)| self.having(of) > 1) else { return false };
            if self.having(&source) > 0 {
                return false;
            }
            self.loaded.swap_remove(at);
            return true;
        }
        // What cannot be made now is made, or fails, when it is needed.
        let Ok(realm) = self.blank.pop().map_or_else(Realm::new, Ok) else { return false };
        let limit = Limit { cpu: cpu_time().saturating_add(CPU * 2), wall_ms: i64::MAX, bytes: BYTES as u64 };
        if realm.load(&source, limit) == Ok(true) {
            self.loaded.push((source, realm));
        } else {
            self.lately[next].way = Way::Early;
        }
        true
    }

    /// Makes a blank realm: as many as a call has taken are there in all, one or two blank ones among them.
    fn make(&mut self, wanted: usize) -> bool {
        let blank = wanted.saturating_sub(self.loaded.len()).max(wanted.min(SPARES - LOADED));
        let room = self.blank.len() < blank && self.blank.len() + self.loaded.len() < SPARES;
        room && Realm::new().map(|realm| self.blank.push(realm)).is_ok()
    }

    fn having(&self, source: &Arc<str>) -> usize {
        self.loaded.iter().filter(|(of, _)| of == source).count()
    }
}

/// What used realms take until they are freed.
#[cfg(test)]
pub(crate) fn unfreed_bytes() -> usize {
    STOCK.with_borrow(|stock| stock.used.iter().map(Realm::bytes).sum())
}

/// How many realms wait with this source.
#[cfg(test)]
pub(crate) fn waiting(source: &str) -> usize {
    STOCK.with_borrow(|stock| stock.having(&source.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evaluates nothing, but takes and gives back realms as an evaluation does.
    fn run(source: &str) -> bool {
        if let Some(realm) = loaded(source) {
            used(realm);
            return true;
        }
        if may_run_early(source) {
            note(source, true, Duration::ZERO, Duration::ZERO);
        }
        used(blank().expect("a realm"));
        false
    }

    fn tidy_all(wanted: usize) {
        while tidy(wanted) {
            STOCK.with_borrow(|stock| assert!(stock.loaded.len() + stock.blank.len() <= SPARES));
        }
    }

    fn blanks() -> usize {
        STOCK.with_borrow(|stock| stock.blank.len())
    }

    fn source(i: usize) -> String {
        format!("function handler() {{ return {{ i: {i} }} }}")
    }

    /// What a thread remembers is its own.
    fn on_a_new_thread(test: fn()) {
        std::thread::spawn(test).join().expect("no panic");
    }

    #[test]
    fn what_was_used_lately_waits_and_a_few_blank_ones() {
        on_a_new_thread(|| {
            tidy_all(0);
            assert_eq!(blanks(), 0, "nothing was used yet");
            assert!(!run(&source(0)));
            tidy_all(1);
            assert_eq!((waiting(&source(0)), blanks()), (1, 1));
            assert!(run(&source(0)));
            assert!(!run(&source(0)), "a realm is used once");
            tidy_all(2);
            assert_eq!((waiting(&source(0)), blanks()), (2, 2));
            for i in 0..LATELY {
                run(&source(i));
            }
            tidy_all(SPARES);
            let all = (0..LATELY).map(|i| waiting(&source(i))).sum::<usize>();
            assert_eq!((all, blanks()), (LOADED, SPARES - LOADED));
        });
    }

    #[test]
    fn one_source_leaves_room_for_others() {
        on_a_new_thread(|| {
            for _ in 0..20 {
                run(&source(0));
            }
            tidy_all(SPARES);
            assert_eq!(waiting(&source(0)), LOADED);
            run(&source(1));
            tidy_all(SPARES);
            assert_eq!((waiting(&source(0)), waiting(&source(1))), (LOADED - 1, 1));
            assert!(run(&source(1)));
        });
    }

    #[test]
    fn what_was_not_used_lately_gives_way() {
        on_a_new_thread(|| {
            run(&source(0));
            tidy_all(1);
            for i in 1..=LATELY {
                run(&source(i));
            }
            tidy_all(1);
            assert_eq!(waiting(&source(0)), 0, "others were used since");
            assert_eq!(waiting(&source(LATELY)), 1);

            run(&source(0));
            for _ in 0..=FORGET {
                tidy_all(1);
                run(&source(1));
            }
            tidy_all(1);
            assert_eq!((waiting(&source(0)), waiting(&source(1))), (0, 1), "long ago");
        });
    }
}
