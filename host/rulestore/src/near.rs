//! Which known name somebody meant who wrote an unknown one.

/// The known name nearest to `word`, when it is near enough to be a slip of the keyboard.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let reach = match word.chars().count() {
        0..=2 => 1,
        3..=7 => 2,
        _ => 3,
    };
    known
        .into_iter()
        .map(|name| (distance(&word, &name.to_lowercase()), name))
        .filter(|(far, name)| *far <= reach && *far < name.chars().count())
        .min()
        .map(|(_, name)| name)
}

/// Names as people list them: `a, b or c`.
pub(crate) fn either<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    match names.as_slice() {
        [] => "nothing".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// Edits (insert, delete, replace, swap neighbours) from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (last[j - 1] + change).min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_and_leaves_other_words_alone() {
        let known = ["plugin", "trigger", "inputs", "on_failure"];
        assert_eq!(nearest("plugn", known), Some("plugin"));
        assert_eq!(nearest("tirgger", known), Some("trigger"));
        assert_eq!(nearest("onFailure", known), Some("on_failure"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("x", ["y"]), None);
    }

    #[test]
    fn lists_names() {
        assert_eq!(either(["a", "b", "c"]), "a, b or c");
        assert_eq!(either(["a"]), "a");
    }
}
