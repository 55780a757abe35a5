//! Files that are read while they are written.

use super::*;

/// Whoever writes in blocks leaves half a line for longer than a file has to rest. It is one row, not two bad ones.
#[test]
fn half_a_line_is_waited_for() {
    let mut w = World::new();
    w.write("a.json", "1\n{\"n\":");
    w.write("b.json", "{\"n\":");
    w.write("c.json", "7");
    let mut files = w.open(0);
    assert_eq!(w.read(&mut files), owned(&[(0, "1"), (1, "7")]), "what is whole without an end is a line");
    let entries = w.journal.entries().unwrap().len();
    assert_eq!(w.read(&mut files), []);
    assert_eq!(
        w.journal.entries().unwrap().len(),
        entries,
        "a line that is waited for is not looked at again and again"
    );
    drop(files);
    let mut files = w.open(2);
    w.write("a.json", "1\n{\"n\":2}\n{\"n\":3}");
    w.write("b.json", "{\"n\":8}\n");
    let mut got = w.read(&mut files);
    got.sort_by(|a, b| a.1.cmp(&b.1));
    let texts: Vec<&str> = got.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["{\"n\":2}", "{\"n\":3}", "{\"n\":8}"]);
    // One that stays as it is is a line in the end, and is told of.
    w.write("d.json", "{\"n\":");
    assert_eq!(w.read(&mut files), []);
    w.now = w.now.plus(Duration::from_secs(500));
    assert_eq!(w.read(&mut files), []);
    w.now = w.now.plus(Duration::from_secs(200));
    assert_eq!(w.read(&mut files), owned(&[(5, "{\"n\":")]));
    assert_eq!(w.read(&mut files), []);
    w.write("e.json", "{\"m\":");
    w.write("e.json.done", "");
    assert_eq!(w.read(&mut files), owned(&[(6, "{\"m\":")]), "somebody says that it is all");
}

#[test]
fn half_a_line_of_csv_is_waited_for() {
    let mut w = World::new();
    w.format.format = FileFormat::Csv;
    w.write("a.csv", &format!("at,n\n{AT},1\n{AT},2"));
    w.write("b.csv", "at,");
    let mut files = w.open(0);
    assert_eq!(w.decoded(&mut files, 9), [good(0, "|1")]);
    w.write("a.csv", &format!("at,n\n{AT},1\n{AT},23\n{AT},4"));
    w.write("b.csv", &format!("at,n\n{AT},5\n"));
    let mut got: Vec<_> = w.decoded(&mut files, 9).into_iter().map(|(_, row)| row.unwrap()).collect();
    got.sort();
    assert_eq!(got, ["|23", "|5"]);
    w.now = w.now.plus(Duration::from_secs(20));
    assert_eq!(w.decoded(&mut files, 9), [good(3, "|4")]);
}

/// What some editors and systems put before a text is neither a row's nor a column's, wherever the reading begins.
#[test]
fn a_byte_order_mark_costs_no_row() {
    let mut w = World::new();
    w.write("a.json", "\u{feff}{\"n\":1}\n{\"n\":2}\n\u{feff}{\"n\":3}\n");
    w.write("b.json", "\u{feff}{\"n\":4}");
    let expected = [(0, "{\"n\":1}"), (1, "{\"n\":2}"), (2, "{\"n\":3}"), (3, "{\"n\":4}")];
    assert_eq!(w.read(&mut w.open(0)), owned(&expected), "a last line without an end is whole as well");
    let mut files = w.open(2);
    assert_eq!(w.read(&mut files), owned(&expected[2..]));
    w.write("c.json", "\u{feff}\n{\"n\":5}\n");
    assert_eq!(w.read(&mut files), owned(&[(5, "{\"n\":5}")]), "a mark alone is an empty line");
    drop(files);

    let mut w = World::new();
    w.format.format = FileFormat::Csv;
    let text = format!("\u{feff}\"at\",\"an\nother, one\",n\n{AT},x,1\n{AT},\u{feff},2\n");
    w.write("a.csv", &text);
    let mut files = w.open(0);
    assert_eq!(w.decoded(&mut files, 9), [good(0, "|1"), good(1, "|2")]);
    w.write("a.csv", &format!("{text}{AT},x,3\n"));
    assert_eq!(w.decoded(&mut files, 9), [good(2, "|3")]);
    assert_eq!(w.decoded(&mut w.open(1), 9), [good(1, "|2"), good(2, "|3")]);
}
