//! Rows of a test's own in the streams and tables of the example.

use super::example::Example;

/// Columns of a topology table that the scenarios read, in the order of [`topology`].
const LINK: [&str; 5] = ["link_type", "local_device_name", "local_device_ip", "local_phys_if", "remote_device_ip"];

/// Gives a stream of the example these rows in place of its own, all at once: SQL values of these columns. The other
/// columns are null.
pub fn stream(example: &Example, stream: &str, columns: &str, values: &str) {
    let file = example.store().join(format!("netops/streams/{stream}.toml"));
    let text = std::fs::read_to_string(&file).unwrap();
    let (head, _) = text.split_once("[source]").unwrap();
    let time = head.lines().find_map(|l| l.strip_prefix("event_time = ")).unwrap().trim_matches('"');
    let source = format!(
        "[source]\ntype = \"generate\"\ninterval = \"1h\"\nsql = '''\nSELECT * FROM (VALUES {values}) AS given({columns})\n\
         WHERE $tick = 0\nORDER BY {time}\n'''\n"
    );
    std::fs::write(file, format!("{head}{source}")).unwrap();
}

/// Gives a topology table of the example these links: kind of link, device, its address and interface, the address of the
/// other side. An empty text is null.
pub fn topology(example: &Example, file: &str, links: &[[&str; 5]]) {
    let text = std::fs::read_to_string(example.store().join(file)).unwrap();
    let header = text.lines().next().unwrap();
    let line = |link: &[&str; 5]| {
        let cell = |column: &str| LINK.iter().position(|l| *l == column).map_or("", |at| link[at]);
        header.split(',').map(cell).collect::<Vec<_>>().join(",")
    };
    let lines: Vec<String> = [header.to_owned()].into_iter().chain(links.iter().map(line)).collect();
    example.write(file, format!("{}\n", lines.join("\n")).as_bytes());
}
