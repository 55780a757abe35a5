//! What became of alarms in a batch: of those that it named, and of the others that it moved.

use std::collections::{BTreeMap, BTreeSet};

use weir_model::alarm::{AlarmAction, AlarmEvent, AlarmRaise, AlarmState, AlarmStatus};
use weir_model::batch::{Commit, Outcome, Space, alarm_key};
use weir_model::review::{AlarmSeen, Made};
use weir_model::{Fault, Name};

use super::sample::cut_text;

/// In the order in which they were named, then by key. A batch that failed has named none.
pub fn seen(said: &[AlarmRaise], commit: &Commit) -> Result<Vec<AlarmSeen>, Fault> {
    let said = if matches!(commit.outcome, Outcome::Failed(_)) { &[] } else { said };
    let key_of = |name: &Name, key: &[String]| alarm_key(name.as_str(), key);
    let events: BTreeMap<Vec<u8>, &AlarmEvent> =
        commit.events.iter().map(|event| (key_of(&event.alarm.name, &event.alarm.key), event)).collect();
    let mut states: BTreeMap<&[u8], AlarmState> = BTreeMap::new();
    for write in commit.state.iter().filter(|write| write.space == Space::Alarms) {
        if let Some(after) = &write.after {
            let state = serde_json::from_slice(&after.value)
                .map_err(|e| Fault::internal(format_args!("an alarm of this batch cannot be read: {e}")))?;
            states.insert(&write.key, state);
        }
    }
    let last: BTreeMap<Vec<u8>, usize> =
        said.iter().enumerate().map(|(i, raise)| (key_of(&raise.name, &raise.key), i)).collect();
    let mut out = Vec::new();
    for (i, raise) in said.iter().enumerate() {
        let key = key_of(&raise.name, &raise.key);
        let one = if last.get(&key) == Some(&i) {
            named(raise, events.get(&key).copied(), states.get(key.as_slice()))
        } else {
            unmoved(raise, Made::Overruled)
        };
        out.push(one);
    }
    let others: BTreeSet<&[u8]> = states.keys().copied().chain(events.keys().map(Vec::as_slice)).collect();
    for key in others.into_iter().filter(|key| !last.contains_key(*key)) {
        let event = events.get(key).copied();
        let Some(state) = event.map(|event| &event.alarm).or_else(|| states.get(key)) else { continue };
        let made = match event {
            Some(event) => event.change.into(),
            None if state.status == AlarmStatus::Open => Made::Quiet,
            None => continue,
        };
        out.push(moved(state, event, made, false));
    }
    Ok(out)
}

fn named(raise: &AlarmRaise, event: Option<&AlarmEvent>, state: Option<&AlarmState>) -> AlarmSeen {
    let one = match (event, state, raise.action) {
        (Some(event), ..) => moved(&event.alarm, Some(event), event.change.into(), true),
        (None, Some(state), AlarmAction::Raise(_)) => moved(state, None, Made::Updated, true),
        (None, ..) => unmoved(raise, Made::Nothing),
    };
    AlarmSeen { because: raise.because.clone(), ..one }
}

fn moved(state: &AlarmState, event: Option<&AlarmEvent>, made: Made, said: bool) -> AlarmSeen {
    AlarmSeen {
        name: state.name.clone(),
        key: state.key.iter().map(|part| cut_text(part)).collect(),
        said,
        made,
        severity: Some(state.severity),
        before: event.and_then(|event| event.before),
        message: cut_text(&state.message),
        count: state.count,
        opened_at: Some(state.opened_at),
        quiet: state.quiet,
        because: Vec::new(),
    }
}

fn unmoved(raise: &AlarmRaise, made: Made) -> AlarmSeen {
    AlarmSeen {
        name: raise.name.clone(),
        key: raise.key.iter().map(|part| cut_text(part)).collect(),
        said: true,
        made,
        severity: match raise.action {
            AlarmAction::Raise(severity) => Some(severity),
            AlarmAction::Clear => None,
        },
        before: None,
        message: cut_text(&raise.message),
        count: 0,
        opened_at: None,
        quiet: 0,
        because: raise.because.clone(),
    }
}
