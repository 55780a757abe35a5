//! The life of alarms: what a batch's raises and clears make of the current ones.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_model::alarm::{AlarmAction, AlarmChange, AlarmEvent, AlarmRaise, AlarmState, AlarmStatus};
use weir_model::batch::alarm_key;
use weir_model::port::AlarmType;
use weir_model::ruleset::AlarmDef;
use weir_model::{BatchId, Digest, Fault, FaultKind, Name, ScenarioId, Severity, Time};

/// How long a cleared alarm is remembered, so that a new raise is a re-open; and how long after it was last seen an alarm
/// stays stale whose type the ruleset does not have any more, before it is cleared.
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
    /// Whether silence counts: the plugin judged, and every source was read past its window's end. Never of a batch that
    /// failed.
    pub quiet_counts: bool,
    /// Alarm types of the plugin.
    pub types: &'a [AlarmType],
    /// Their settings.
    pub defs: &'a BTreeMap<Name, AlarmDef>,
    /// Most alarms that are kept, `limits.current_alarms`.
    pub most: u64,
}

impl Judgement<'_> {
    /// Whether the plugin can still raise an alarm of this type and key.
    fn declares(&self, state: &AlarmState) -> bool {
        self.types.iter().any(|t| t.name == state.name && t.key == state.key_names)
    }
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

/// Applies a batch; one that failed says nothing. When a batch names an alarm several times, the last one counts. The
/// fault is the tenant's: more alarms than are kept.
pub fn apply(current: &Current, said: &[AlarmRaise], by: Judgement<'_>) -> Result<Changes, Fault> {
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
    bound(current, &mut changes, by.most)?;
    Ok(changes)
}

/// Forgets the alarms that were cleared first, where there are more than may be kept.
fn bound(current: &Current, changes: &mut Changes, most: u64) -> Result<(), Fault> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let (new, gone) = (
        changes.states.iter().filter(|(k, s)| s.is_some() && !current.contains_key(*k)).count(),
        changes.states.iter().filter(|(k, s)| s.is_none() && current.contains_key(*k)).count(),
    );
    let over = (current.len() + new - gone).saturating_sub(most);
    if new == 0 || over == 0 {
        return Ok(());
    }
    let after = |key: &Vec<u8>| changes.states.get(key).map_or_else(|| current.get(key), Option::as_ref);
    let keys = current.keys().chain(changes.states.keys().filter(|k| !current.contains_key(*k)));
    let mut cleared: Vec<(Option<Time>, Vec<u8>)> = keys
        .filter_map(|key| Some((after(key)?, key)))
        .filter(|(state, _)| state.status == AlarmStatus::Cleared)
        .map(|(state, key)| (state.cleared_at, key.clone()))
        .collect();
    if cleared.len() < over {
        let open = most + over - cleared.len();
        return Err(Fault::tenant(
            FaultKind::Alarms,
            format_args!("{open} alarms of the scenario would be open or stale, and the limit is {most}"),
        )
        .field("current_alarms")
        .fix("raise alarms with fewer different keys, clear them, or raise limits.current_alarms in scenario.toml and tenant.toml"));
    }
    cleared.sort();
    changes.states.extend(cleared.into_iter().take(over).map(|(_, key)| (key, None)));
    Ok(())
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
    severity: Severity,
    by: Judgement<'_>,
) -> Option<(AlarmState, Option<AlarmChange>)> {
    let change = match before {
        None => Some(AlarmChange::Opened),
        Some(s) if s.status == AlarmStatus::Cleared => Some(AlarmChange::Reopened),
        Some(s) if severity > s.severity => Some(AlarmChange::Escalated),
        Some(s) if severity < s.severity => Some(AlarmChange::Lowered),
        Some(s) if s.status == AlarmStatus::Stale => Some(AlarmChange::Fresh),
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
        count: goes_on.map_or(1, |s| s.count.saturating_add(1)),
        quiet: 0,
        ruleset: by.ruleset,
        batch: by.batch,
        peak: goes_on.map_or(severity, |s| s.peak.max(s.severity).max(severity)),
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
        // Nobody will ever raise or clear it. It is not known to be over, so it does not clear at once; and it must not
        // stay for ever.
        _ if !by.declares(state) && by.time.since(state.last_seen) > CLEARED_KEPT => becomes(cleared(state, None, by)),
        AlarmStatus::Stale if !by.quiet_counts || !by.declares(state) => Unnamed::Keep,
        AlarmStatus::Open if !by.quiet_counts || !by.declares(state) => {
            let after = AlarmState { status: AlarmStatus::Stale, ..state.clone() };
            becomes(Some((after, Some(AlarmChange::Stale))))
        }
        AlarmStatus::Open | AlarmStatus::Stale => {
            let mut after = state.clone();
            after.status = AlarmStatus::Open;
            after.quiet = state.quiet.saturating_add(1);
            let clear_after = by.defs.get(&state.name).and_then(|d| d.clear_after);
            if clear_after.is_some_and(|n| after.quiet >= n) {
                return becomes(cleared(&after, None, by));
            }
            let change = (state.status == AlarmStatus::Stale).then_some(AlarmChange::Fresh);
            becomes(Some((after, change)))
        }
    }
}

fn becomes(step: Option<(AlarmState, Option<AlarmChange>)>) -> Unnamed {
    step.map_or(Unnamed::Keep, |(after, change)| Unnamed::Becomes(Box::new(after), change))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    struct World {
        current: Current,
        time: i64,
        defs: BTreeMap<Name, AlarmDef>,
        /// Names of the key's fields of the type `errors`; none: the ruleset does not have it.
        key: Option<&'static str>,
        most: u64,
    }

    impl World {
        fn new(clear_after: Option<u32>) -> Self {
            let defs = BTreeMap::from([(Name::new("errors").unwrap(), AlarmDef { clear_after })]);
            Self { current: Current::new(), time: 0, defs, key: Some("router"), most: 100 }
        }
        /// One batch a minute; answers the changes as words.
        fn batch(&mut self, said: &[(&str, AlarmAction)], quiet_counts: bool) -> Vec<String> {
            self.try_batch(said, quiet_counts).unwrap()
        }
        fn try_batch(&mut self, said: &[(&str, AlarmAction)], quiet_counts: bool) -> Result<Vec<String>, Fault> {
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
            let types: Vec<AlarmType> = self
                .key
                .map(|key| AlarmType { name: Name::new("errors").unwrap(), key: vec![key.into()] })
                .into_iter()
                .collect();
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
                    most: self.most,
                },
            )?;
            for (key, state) in changes.states {
                match state {
                    Some(state) => self.current.insert(key, state),
                    None => self.current.remove(&key),
                };
            }
            Ok(changes.events.iter().map(|e| format!("{} {}", e.alarm.key[0], e.change)).collect())
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

    #[test]
    fn a_stale_alarm_is_fresh_again_when_it_is_raised_or_when_silence_counts_again() {
        let mut w = World::new(Some(2));
        w.batch(&[("a", WARNING)], true);
        assert_eq!(w.batch(&[], false), ["a stale"]);
        assert_eq!(w.batch(&[("a", WARNING)], false), ["a fresh"]);
        assert_eq!((w.only().status, w.only().count, w.only().quiet), (AlarmStatus::Open, 2, 0));
        assert_eq!(w.batch(&[], false), ["a stale"]);
        assert_eq!(w.batch(&[("a", CRITICAL)], true), ["a escalated"]);
        assert_eq!(w.batch(&[], false), ["a stale"]);
        assert_eq!(w.batch(&[], true), ["a fresh"]);
        assert_eq!((w.only().status, w.only().quiet), (AlarmStatus::Open, 1));
        // The batch that could not tell neither counts as quiet nor begins the count again.
        assert_eq!(w.batch(&[], false), ["a stale"]);
        assert_eq!(w.batch(&[], true), ["a cleared"]);
    }

    #[test]
    fn the_peak_is_the_highest_severity_since_it_was_opened() {
        let mut w = World::new(None);
        w.batch(&[("a", WARNING)], true);
        w.batch(&[("a", CRITICAL)], true);
        w.batch(&[("a", WARNING)], true);
        assert_eq!((w.only().severity, w.only().peak), (Severity::Warning, Severity::Critical));
        w.batch(&[("a", AlarmAction::Clear)], true);
        assert_eq!(w.only().peak, Severity::Critical);
        w.batch(&[("a", WARNING)], true);
        assert_eq!(w.only().peak, Severity::Warning);
    }

    #[test]
    fn a_type_that_a_swap_takes_away_leaves_stale_alarms_that_are_cleared_after_a_day() {
        let mut w = World::new(Some(1));
        w.batch(&[("a", WARNING)], true);
        w.key = None;
        assert_eq!(w.batch(&[], true), ["a stale"]);
        assert_eq!(w.batch(&[], true), Vec::<String>::new());
        w.key = Some("router");
        assert_eq!(w.batch(&[("a", WARNING)], true), ["a fresh"]);
        w.key = Some("host");
        assert_eq!(w.batch(&[], true), ["a stale"], "no alarm of the new type has this key");
        w.time += 24 * 3_600_000_000;
        assert_eq!(w.batch(&[], false), ["a cleared"]);
    }

    #[test]
    fn the_oldest_cleared_ones_make_room_and_open_ones_are_bounded() {
        let mut w = World::new(None);
        w.most = 3;
        w.batch(&[("a", WARNING), ("b", WARNING), ("c", WARNING)], true);
        let fault = w.try_batch(&[("d", WARNING)], true).unwrap_err();
        assert_eq!((fault.kind, fault.field.as_deref()), (FaultKind::Alarms, Some("current_alarms")));
        assert!(fault.message.starts_with("4 alarms"), "{fault}");
        w.batch(&[("b", AlarmAction::Clear)], true);
        w.batch(&[("c", AlarmAction::Clear)], true);
        assert_eq!(w.batch(&[("d", WARNING)], true), ["d opened"]);
        let keys: Vec<&str> = w.current.values().map(|s| s.key[0].as_str()).collect();
        assert_eq!(keys, ["a", "c", "d"]);
        w.most = 2;
        assert_eq!(w.batch(&[("a", CRITICAL)], true), ["a escalated"], "a lower limit stops new ones only");
    }
}
