//! Error texts: each folder of `tests-ui` holds a store and the texts that it must give. `WEIR_BLESS=1` records them anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use std::fmt::Write as _;
use std::path::Path;

use weir_model::Limits;
use weir_rulestore::check_folder;

#[test]
fn bad_stores_give_the_recorded_texts() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests-ui");
    let bless = std::env::var_os("WEIR_BLESS").is_some();
    let mut cases = 0;
    let mut wrong = String::new();
    for case in std::fs::read_dir(&root).unwrap() {
        let case = case.unwrap().path();
        cases += 1;
        let mut got = String::new();
        for (subject, problems) in
            check_folder(&case.join("store"), &Limits::defaults(), &support::ByContent::default(), None)
        {
            for problem in problems {
                writeln!(
                    got,
                    "{subject}{}\n  {problem}",
                    if problem.may_be_partial { " (may be partial)" } else { "" }
                )
                .unwrap();
            }
        }
        let file = case.join("expected.txt");
        if bless {
            std::fs::write(&file, &got).unwrap();
        } else if std::fs::read_to_string(&file).unwrap_or_default() != got {
            writeln!(wrong, "{}:\n{got}", case.display()).unwrap();
        }
    }
    assert!(cases >= 8, "only {cases} cases were found");
    assert!(wrong.is_empty(), "these texts are not the recorded ones:\n{wrong}");
}
