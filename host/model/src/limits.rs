//! Limits: built into every store, session and loader; never optional. Defaults stand in `defaults/limits.toml`.

use serde::{Deserialize, Serialize};

use crate::duration::Span;

/// The text of the defaults, with a comment for each limit.
pub const DEFAULTS: &str = include_str!("../defaults/limits.toml");

/// All limits of a scenario, merged. What each one bounds stands in `defaults/limits.toml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Limits {
    pub cpu_fuel: u64,
    pub deadline: Span,
    pub memory_bytes: u64,
    pub table_elements: u64,
    pub instances: u64,
    pub stack_bytes: u64,
    pub handles: u64,
    pub host_call_bytes: u64,
    pub host_calls: u64,
    pub output_rows: u64,
    pub output_bytes: u64,
    pub alarms: u64,
    pub alarm_bytes: u64,
    pub alarm_fields: u64,
    pub log_lines: u64,
    pub log_bytes: u64,
    pub state_bytes: u64,
    pub state_keys: u64,
    pub state_key_bytes: u64,
    pub state_value_bytes: u64,
    pub sql_memory_bytes: u64,
    pub sql_rows: u64,
    pub sql_time: Span,
    pub rule_time: Span,
    pub rule_rows: u64,
    pub component_bytes: u64,
    pub compile_time: Span,
    pub rule_bytes: u64,
    pub query_bytes: u64,
    pub asset_bytes: u64,
    pub current_alarms: u64,
    pub table_bytes: u64,
    pub rule_memory_bytes: u64,
}

/// Single limits that override others: the `[limits]` of a tenant or a scenario.
pub type LimitsPatch = toml::Table;

impl Limits {
    /// The defaults.
    pub fn defaults() -> Self {
        // The file is compiled in and a test reads it, so this cannot fail at run time.
        #[allow(clippy::expect_used)]
        toml::from_str(DEFAULTS).expect("defaults/limits.toml is read by a test")
    }

    /// The limits with single ones overridden. The error names the limit that is unknown or has a wrong value.
    pub fn with(&self, patch: &LimitsPatch) -> Result<Self, String> {
        let mut all = toml::Table::try_from(self).map_err(|e| e.to_string())?;
        for (name, value) in patch {
            if !all.contains_key(name) {
                return Err(format!(
                    "{name} is no limit; the limits are {}",
                    all.keys().cloned().collect::<Vec<_>>().join(", ")
                ));
            }
            all.insert(name.clone(), value.clone());
        }
        all.try_into().map_err(|e: toml::de::Error| e.message().to_owned())
    }

    /// The smaller of both, limit by limit: what a scenario gets that asks for more than its tenant has.
    #[must_use]
    pub fn capped_by(&self, cap: &Self) -> Self {
        macro_rules! smaller { ($($f:ident),*) => { Self { $($f: self.$f.min(cap.$f)),* } } }
        smaller!(
            cpu_fuel,
            deadline,
            memory_bytes,
            table_elements,
            instances,
            stack_bytes,
            handles,
            host_call_bytes,
            host_calls,
            output_rows,
            output_bytes,
            alarms,
            alarm_bytes,
            alarm_fields,
            log_lines,
            log_bytes,
            state_bytes,
            state_keys,
            state_key_bytes,
            state_value_bytes,
            sql_memory_bytes,
            sql_rows,
            sql_time,
            rule_time,
            rule_rows,
            component_bytes,
            compile_time,
            rule_bytes,
            query_bytes,
            asset_bytes,
            current_alarms,
            table_bytes,
            rule_memory_bytes
        )
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::defaults()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use super::*;

    #[test]
    fn defaults_are_read_and_overridden_one_by_one() {
        let all = Limits::defaults();
        let patch: LimitsPatch = toml::from_str("alarms = 5\nrule_time = \"1s\"").expect("toml");
        let less = all.with(&patch).expect("known limits");
        assert_eq!((less.alarms, less.rule_time, less.handles), (5, Span::secs(1), all.handles));
        let capped = all.capped_by(&less);
        assert_eq!((capped.alarms, capped.rule_time), (5, Span::millis(500)));
    }

    #[test]
    fn an_unknown_limit_is_named() {
        let patch: LimitsPatch = toml::from_str("alarmz = 5").expect("toml");
        assert!(Limits::defaults().with(&patch).expect_err("unknown").starts_with("alarmz is no limit"));
    }
}
