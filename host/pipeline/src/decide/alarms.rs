//! The life of alarms: what a batch's raises and clears make of the current ones.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_model::alarm::{AlarmAction, AlarmChange, AlarmEvent, AlarmRaise, AlarmState, AlarmStatus};
use weir_model::batch::alarm_key;
use weir_model::port::AlarmType;
use weir_model::ruleset::AlarmDef;
use weir_model::{BatchId, Digest, Name, ScenarioId, Time};

/// How long a cleared alarm is remembered, so that a new raise is a re-open.
pub const CLEARED_KEPT: Duration = Duration::from_secs(24 * 3600);

/// The batch that raises and clears.
#[derive(Debug, Clone, Copy)]
pub struct Judgement<'a> {
    /// The scenario.
    pub scenario: &'a ScenarioId,
    /// T.
    pub time: Time,
    /// N.
    pub batch: BatchId,
    /// What it ran on.
    pub ruleset: Digest,
    /// Whether silence counts: the plugin judged, and every source was read past its window's end.
    pub quiet_counts: bool,
    /// Alarm types of the plugin.
    pub types: &'a [AlarmType],
    /// Their settings.
    pub defs: &'a BTreeMap<Name, AlarmDef>,
}

/// Current alarms by their state key.
pub type Current = BTreeMap<Vec<u8>, AlarmState>;

/// What changes.
#[derive(Debug, Default, PartialEq)]
pub struct Changes {
    /// New states by key; none: forget it.
    pub states: BTreeMap<Vec<u8>, Option<AlarmState>>,
    /// Rows of `alarm_events`, in order of the raises, then of the keys.
    pub events: Vec<AlarmEvent>,
}

/// Applies a batch. When one batch names an alarm several times, the last one counts.
pub fn apply(current: &Current, said: &[AlarmRaise], by: Judgement<'_>) -> Changes {
    let mut last: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for (i, raise) in said.iter().enumerate() {
        last.insert(alarm_key(raise.name.as_str(), &raise.key), i);
    }
    let mut changes = Changes::default();
    for (i, raise) in said.iter().enumerate() {
        let key = alarm_key(raise.name.as_str(), &raise.key);
        if last.get(&key) != Some(&i) {
            continue;
        }
        let before = current.get(&key);
        let step = match raise.action {
            AlarmAction::Raise(severity) => raised(before, raise, severity, by),
            AlarmAction::Clear => before.and_then(|state| cleared(state, Some(raise), by)),
        };
        take(&mut changes, key, step, before, raise, by);
    }
    for (key, state) in current {
        if last.contains_key(key) {
            continue;
        }
        match unnamed(state, by) {
            Unnamed::Keep => {}
            Unnamed::Forget => {
                changes.states.insert(key.clone(), None);
            }
            Unnamed::Becomes(state_after, change) => {
                if let Some(change) = change {
                    changes.events.push(event(change, Some(state), &state_after, by, Vec::new()));
                }
                changes.states.insert(key.clone(), Some(*state_after));
            }
        }
    }
    changes
}

fn take(
    changes: &mut Changes,
    key: Vec<u8>,
    step: Option<(AlarmState, Option<AlarmChange>)>,
    before: Option<&AlarmState>,
    raise: &AlarmRaise,
    by: Judgement<'_>,
) {
    let Some((after, change)) = step else { return };
    if let Some(change) = change {
        changes.events.push(event(change, before, &after, by, raise.because.clone()));
    }
    changes.states.insert(key, Some(after));
}

fn event(
    change: AlarmChange,
    before: Option<&AlarmState>,
    after: &AlarmState,
    by: Judgement<'_>,
    because: Vec<weir_model::alarm::Because>,
) -> AlarmEvent {
    AlarmEvent {
        change,
        before: before.map(|s| s.severity),
        alarm: after.clone(),
        time: by.time,
        batch: by.batch,
        ruleset: by.ruleset,
        because,
    }
}

fn raised(
    before: Option<&AlarmState>,
    raise: &AlarmRaise,
    severity: weir_model::Severity,
    by: Judgement<'_>,
) -> Option<(AlarmState, Option<AlarmChange>)> {
    let change = match before {
        None => Some(AlarmChange::Opened),
        Some(s) if s.status == AlarmStatus::Cleared => Some(AlarmChange::Reopened),
        Some(s) if severity > s.severity => Some(AlarmChange::Escalated),
        Some(s) if severity < s.severity => Some(AlarmChange::Lowered),
        Some(_) => None,
    };
    let goes_on = before.filter(|s| s.status != AlarmStatus::Cleared);
    let after = AlarmState {
        scenario: by.scenario.clone(),
        name: raise.name.clone(),
        key_names: key_names(by.types, &raise.name),
        key: raise.key.clone(),
        status: AlarmStatus::Open,
        severity,
        message: raise.message.clone(),
        fields: raise.fields.clone(),
        opened_at: goes_on.map_or(by.time, |s| s.opened_at),
        last_seen: by.time,
        cleared_at: None,
        count: goes_on.map_or(1, |s| s.count + 1),
        quiet: 0,
        ruleset: by.ruleset,
        batch: by.batch,
    };
    Some((after, change))
}

fn key_names(types: &[AlarmType], name: &Name) -> Vec<String> {
    types.iter().find(|t| t.name == *name).map(|t| t.key.clone()).unwrap_or_default()
}

fn cleared(
    state: &AlarmState,
    raise: Option<&AlarmRaise>,
    by: Judgement<'_>,
) -> Option<(AlarmState, Option<AlarmChange>)> {
    if state.status == AlarmStatus::Cleared {
        return None;
    }
    let mut after = state.clone();
    after.status = AlarmStatus::Cleared;
    after.cleared_at = Some(by.time);
    if let Some(raise) = raise.filter(|r| !r.message.is_empty()) {
        after.message.clone_from(&raise.message);
    }
    Some((after, Some(AlarmChange::Cleared)))
}

enum Unnamed {
    Keep,
    Forget,
    Becomes(Box<AlarmState>, Option<AlarmChange>),
}

/// An alarm that the batch did not name.
fn unnamed(state: &AlarmState, by: Judgement<'_>) -> Unnamed {
    match state.status {
        AlarmStatus::Cleared => {
            let since = state.cleared_at.unwrap_or(state.last_seen);
            if by.time.since(since) > CLEARED_KEPT { Unnamed::Forget } else { Unnamed::Keep }
        }
        AlarmStatus::Open if !by.quiet_counts => {
            let mut after = state.clone();
            after.status = AlarmStatus::Stale;
            Unnamed::Becomes(Box::new(after), Some(AlarmChange::Stale))
        }
        AlarmStatus::Stale if !by.quiet_counts => Unnamed::Keep,
        AlarmStatus::Open | AlarmStatus::Stale => {
            let mut after = state.clone();
            after.status = AlarmStatus::Open;
            after.quiet = state.quiet.saturating_add(1);
            let clear_after = by.defs.get(&state.name).and_then(|d| d.clear_after);
            if clear_after.is_some_and(|n| after.quiet >= n)
                && let Some((after, change)) = cleared(&after, None, by)
            {
                return Unnamed::Becomes(Box::new(after), change);
            }
            Unnamed::Becomes(Box::new(after), None)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use weir_model::Severity;

    struct World {
        current: Current,
        time: i64,
        defs: BTreeMap<Name, AlarmDef>,
    }

    impl World {
        fn new(clear_after: Option<u32>) -> Self {
            let defs = BTreeMap::from([(Name::new("errors").unwrap(), AlarmDef { clear_after })]);
            Self { current: Current::new(), time: 0, defs }
        }
        /// One batch a minute; answers the changes as words.
        fn batch(&mut self, said: &[(&str, AlarmAction)], quiet_counts: bool) -> Vec<String> {
            self.time += 60_000_000;
            let said: Vec<AlarmRaise> = said
                .iter()
                .map(|(key, action)| AlarmRaise {
                    name: Name::new("errors").unwrap(),
                    key: vec![(*key).to_owned()],
                    action: *action,
                    message: String::new(),
                    fields: Vec::new(),
                    because: Vec::new(),
                })
                .collect();
            let types = [AlarmType { name: Name::new("errors").unwrap(), key: vec!["router".into()] }];
            let scenario: ScenarioId = "t/s".parse().unwrap();
            let changes = apply(
                &self.current,
                &said,
                Judgement {
                    scenario: &scenario,
                    time: Time(self.time),
                    batch: BatchId(u64::try_from(self.time / 60_000_000).unwrap()),
                    ruleset: Digest([0; 32]),
                    quiet_counts,
                    types: &types,
                    defs: &self.defs,
                },
            );
            for (key, state) in changes.states {
                match state {
                    Some(state) => self.current.insert(key, state),
                    None => self.current.remove(&key),
                };
            }
            changes.events.iter().map(|e| format!("{} {}", e.alarm.key[0], e.change)).collect()
        }
        fn only(&self) -> &AlarmState {
            self.current.values().next().unwrap()
        }
    }

    const CRITICAL: AlarmAction = AlarmAction::Raise(Severity::Critical);
    const WARNING: AlarmAction = AlarmAction::Raise(Severity::Warning);

    #[test]
    fn opened_updated_escalated_lowered_cleared_reopened() {
        let mut w = World::new(None);
        assert_eq!(w.batch(&[("a", WARNING)], true), ["a opened"]);
        assert_eq!(w.batch(&[("a", WARNING)], true), Vec::<String>::new());
        assert_eq!((w.only().count, w.only().last_seen, w.only().opened_at), (2, Time(120_000_000), Time(60_000_000)));
        assert_eq!(w.batch(&[("a", CRITICAL)], true), ["a escalated"]);
        assert_eq!(w.batch(&[("a", WARNING)], true), ["a lowered"]);
        assert_eq!(w.batch(&[("a", AlarmAction::Clear)], true), ["a cleared"]);
        assert_eq!(w.batch(&[("a", AlarmAction::Clear)], true), Vec::<String>::new());
        assert_eq!(w.batch(&[("a", WARNING)], true), ["a reopened"]);
        assert_eq!((w.only().count, w.only().opened_at), (1, Time(7 * 60_000_000)));
    }

    #[test]
    fn quiet_judged_batches_clear_after_the_configured_number() {
        let mut w = World::new(Some(2));
        w.batch(&[("a", WARNING)], true);
        assert_eq!(w.batch(&[], true), Vec::<String>::new());
        assert_eq!(w.batch(&[], true), ["a cleared"]);
    }

    #[test]
    fn a_raise_in_between_starts_the_count_again() {
        let mut w = World::new(Some(2));
        w.batch(&[("a", WARNING)], true);
        w.batch(&[], true);
        w.batch(&[("a", WARNING)], true);
        assert_eq!(w.batch(&[], true), Vec::<String>::new());
        assert_eq!(w.batch(&[], true), ["a cleared"]);
    }

    #[test]
    fn without_a_verdict_an_alarm_turns_stale_and_does_not_clear() {
        let mut w = World::new(Some(1));
        w.batch(&[("a", WARNING)], true);
        assert_eq!(w.batch(&[], false), ["a stale"]);
        assert_eq!(w.batch(&[], false), Vec::<String>::new());
        assert_eq!(w.only().status, AlarmStatus::Stale);
        assert_eq!(w.batch(&[], true), ["a cleared"]);
    }

    #[test]
    fn without_a_setting_only_the_plugin_clears() {
        let mut w = World::new(None);
        w.batch(&[("a", WARNING)], true);
        for _ in 0..100 {
            assert_eq!(w.batch(&[], true), Vec::<String>::new());
        }
        assert_eq!(w.only().status, AlarmStatus::Open);
    }

    #[test]
    fn a_cleared_alarm_is_forgotten_after_a_day() {
        let mut w = World::new(None);
        w.batch(&[("a", WARNING)], true);
        w.batch(&[("a", AlarmAction::Clear)], true);
        w.time += 24 * 3_600_000_000;
        w.batch(&[], true);
        assert!(w.current.is_empty());
        assert_eq!(w.batch(&[("a", WARNING)], true), ["a opened"]);
    }

    #[test]
    fn keys_do_not_meet_and_the_last_word_counts() {
        let mut w = World::new(Some(1));
        assert_eq!(w.batch(&[("a", WARNING), ("b", CRITICAL), ("a", CRITICAL)], true), ["b opened", "a opened"]);
        assert_eq!(w.batch(&[("b", CRITICAL)], true), ["a cleared"]);
    }
}
