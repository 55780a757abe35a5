//! The few command line forms that are needed: `--flag`, `--name VALUE`, and everything after `--`.

/// The arguments that no one has taken yet.
pub struct Args {
    words: Vec<String>,
    rest: Vec<String>,
}

impl Args {
    /// Of a command line without the command.
    pub fn new(words: impl Iterator<Item = String>) -> Self {
        let mut words: Vec<String> = words.collect();
        let rest = match words.iter().position(|w| w == "--") {
            None => Vec::new(),
            Some(at) => words.split_off(at).into_iter().skip(1).collect(),
        };
        Self { words, rest }
    }

    /// What came after `--` is understood as if it had come before: for commands that pass nothing on.
    pub fn joined(mut self) -> Self {
        self.words.append(&mut self.rest);
        self
    }

    /// Takes `--name`; says whether it was there.
    pub fn flag(&mut self, name: &str) -> bool {
        let before = self.words.len();
        self.words.retain(|w| w != name);
        self.words.len() < before
    }

    /// Takes `--name VALUE` or `--name=VALUE`.
    pub fn value(&mut self, name: &str) -> Result<Option<String>, String> {
        let with_equals = format!("{name}=");
        for at in 0..self.words.len() {
            if let Some(value) = self.words[at].strip_prefix(&with_equals) {
                let value = value.to_owned();
                self.words.remove(at);
                return Ok(Some(value));
            }
            if self.words[at] == name {
                if self.words.get(at + 1).is_none_or(|v| v.starts_with("--")) {
                    return Err(format!("{name} needs a value"));
                }
                self.words.remove(at);
                return Ok(Some(self.words.remove(at)));
            }
        }
        Ok(None)
    }

    /// Nothing may be left.
    pub fn end(&self) -> Result<(), String> {
        match self.words.iter().chain(&self.rest).next() {
            None => Ok(()),
            Some(word) => Err(format!("'{word}' is not understood; see cargo xtask help")),
        }
    }

    /// What came after `--`; nothing else may be left.
    pub fn rest(self) -> Result<Vec<String>, String> {
        match self.words.first() {
            None => Ok(self.rest),
            Some(word) => Err(format!("'{word}' is not understood; arguments to pass on come after --")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: &str) -> Args {
        Args::new(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn both_forms_of_a_value_and_flags_in_any_order() {
        let mut a = args("--keep --dir x --for=5");
        assert_eq!(a.value("--for"), Ok(Some("5".to_owned())));
        assert_eq!(a.value("--dir"), Ok(Some("x".to_owned())));
        assert!(a.flag("--keep") && !a.flag("--keep"));
        assert_eq!(a.end(), Ok(()));
    }

    #[test]
    fn what_is_missing_or_left_over_is_named() {
        assert_eq!(args("--dir --keep").value("--dir"), Err("--dir needs a value".to_owned()));
        assert!(args("--kep").end().is_err_and(|e| e.contains("--kep")));
        assert!(args("-- a").end().is_err());
        assert_eq!(args("-- a --b").rest(), Ok(vec!["a".to_owned(), "--b".to_owned()]));
    }
}
