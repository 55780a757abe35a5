//! What is loaded, and what is refused with which words.

use std::fs;
use std::time::Duration;

use weir_model::{Problem, Span};

use super::guest::{FILE, Guest, Place, component};

fn only(problems: Vec<Problem>) -> Problem {
    assert_eq!(problems.len(), 1, "{problems:?}");
    let problem = problems.into_iter().next().expect("one");
    assert!(!problem.fix.is_empty(), "{problem}");
    problem
}

#[test]
fn a_plugin_is_described_prepared_and_found_in_the_cache() {
    let place = Place::new();
    let bytes = Guest::default().component();
    let plugin = place.load(&bytes, |_| ()).expect("a plugin");
    let said = plugin.description();
    assert_eq!((said.name.as_str(), said.state, said.inputs[0].as_str()), ("p", Some(1), "q"));
    assert_eq!(plugin.digest(), weir_model::Digest::of(&bytes));
    let files: Vec<_> = fs::read_dir(place.folder.path()).expect("the cache").collect();
    assert_eq!(files.len(), 1);
    drop(plugin);
    // Found: there is no time to compile it, and its file is the same.
    place.load(&bytes, |l| l.compile_time = Span(Duration::ZERO)).expect("from the cache");
    // Damaged: compiled again.
    let path = files[0].as_ref().expect("a file").path();
    fs::write(&path, b"damaged").expect("writes");
    place.load(&bytes, |_| ()).expect("compiled again");
    assert!(fs::read(&path).expect("the file").len() > 1_000);
}

#[test]
fn what_is_no_component_is_told_apart() {
    let place = Place::new();
    let whole = Guest::default().component();
    let module = wat::parse_str("(module)").expect("text");
    let cases: [(&[u8], &str, bool); 8] = [
        (b"", "the file is empty", true),
        (b"\0as", "the component is cut short", true),
        (&module, "it is a WebAssembly module, not a component", false),
        (b"(component)", "it is WebAssembly text, not a component", false),
        (b"hello", "it is text, not a component", false),
        (b"\xff\xfe\xfd\xfc\xfb", "it is no WebAssembly component", false),
        (&whole[..whole.len() - 1], "the component is cut short", true),
        (&whole[..whole.len() / 2], "the component is cut short", true),
    ];
    for (bytes, message, partial) in cases {
        let problem = only(place.refused(bytes));
        assert_eq!((problem.file.as_str(), problem.message.as_str()), (FILE, message));
        assert_eq!(problem.may_be_partial, partial, "{message}");
    }
}

#[test]
fn a_component_cut_anywhere_is_refused_and_never_a_panic() {
    let place = Place::new();
    let whole = Guest::default().component();
    for len in (0..whole.len()).step_by(97) {
        let problem = only(place.refused(&whole[..len]));
        assert!(problem.may_be_partial, "cut at {len}: {problem}");
    }
}

#[test]
fn too_many_bytes_are_refused() {
    let place = Place::new();
    let bytes = Guest::default().component();
    let size = bytes.len() as u64;
    assert!(place.load(&bytes, |l| l.component_bytes = size).is_ok());
    let refused = place.load(&bytes, |l| l.component_bytes = size - 1).err().expect("refused");
    assert!(only(refused).fix.contains("limits.component_bytes"));
}

#[test]
fn an_unknown_version_is_named_before_anything_is_compiled() {
    let place = Place::new();
    for version in ["9.9.0", "0.1.1", "0.2.0", "1.0.0"] {
        let bytes = component(&Guest::default().module(), Some(("0.1.0", version)));
        let problem = only(place.refused(&bytes));
        let expected = format!("unknown interface version weir:detect@{version}; this host knows 0.1.0");
        assert_eq!(problem.message, expected);
    }
    assert_eq!(fs::read_dir(place.folder.path()).expect("the cache").count(), 0);
}

fn text(component: &str) -> Vec<u8> {
    wat::parse_str(component).expect("text")
}

#[test]
fn imports_that_are_not_granted_are_all_named() {
    let place = Place::new();
    let bytes = text(
        r#"(component
            (import "wasi:http/types@0.2.0" (instance))
            (import "wasi:cli/environment@0.2.6" (instance))
            (import "wasi:io/poll@0.3.0" (instance))
            (import "weir:detect/secrets@0.1.0" (instance))
            (import "run" (func))
            (instance $i)
            (export "weir:detect/plugin@0.1.0" (instance $i)))"#,
    );
    let problems = place.refused(&bytes);
    let fields: Vec<&str> = problems.iter().map(|p| p.field.as_str()).collect();
    assert_eq!(fields, ["wasi:http/types@0.2.0", "wasi:io/poll@0.3.0", "weir:detect/secrets@0.1.0", "run"]);
    assert_eq!(problems[0].message, "it imports wasi:http/types@0.2.0, which is not granted to plugins");
}

#[test]
fn a_component_that_is_no_plugin_is_refused() {
    let place = Place::new();
    let problem = only(place.refused(&text("(component)")));
    assert_eq!(problem.message, "it does not export weir:detect/plugin@0.1.0, so it is no plugin");
    let bytes = text(r#"(component (instance $i) (export "weir:detect/plugin@0.1.0" (instance $i)))"#);
    let problem = only(place.refused(&bytes));
    assert!(problem.message.starts_with("it does not fit to weir:detect@0.1.0: "), "{problem}");
}

/// Each with the feature that the problem must name.
const FEATURES: &[(&str, &str)] = &[
    ("threads", "(memory 1 1 shared)"),
    ("threads", "(memory 1) (func (result i32) (i32.atomic.load (i32.const 0)))"),
    ("memory64", "(memory i64 1)"),
    ("multi-memory", "(memory 1) (memory 1)"),
    ("exceptions", "(tag)"),
    ("gc", "(type (struct))"),
    ("relaxed-simd", "(func (param v128) (drop (i8x16.relaxed_swizzle (local.get 0) (local.get 0))))"),
    ("tail-call", "(func $f return_call $f)"),
    ("function-references", "(func (param (ref func)))"),
    ("custom-page-sizes", "(memory 1 (pagesize 1))"),
    ("wide-arithmetic", "(func (drop (drop (i64.add128 (i64.const 0) (i64.const 0) (i64.const 0) (i64.const 0)))))"),
    ("gc-types", "(func (param externref))"),
];

#[test]
fn webassembly_beyond_the_list_is_refused_and_named() {
    let engine = super::engine();
    for (name, fields) in FEATURES {
        let bytes = text(&format!("(component (core module {fields}))"));
        let problem = crate::admit::validate(FILE, &bytes).expect_err(fields);
        assert_eq!(problem.field, *name, "{fields}: {problem}");
        assert!(problem.message.starts_with(&format!("it uses the WebAssembly feature {name}, ")), "{problem}");
        // The engine itself refuses them too: its effective set is the list, whatever a dependency turns on.
        assert!(wasmtime::component::Component::from_binary(&engine, &bytes).is_err(), "{fields}");
    }
    for fields in [
        "(func (param v128) (result v128) (i32x4.add (local.get 0) (local.get 0)))",
        "(memory 1) (func (memory.fill (i32.const 0) (i32.const 0) (i32.const 1)))",
        "(table 1 funcref) (func (result i32 i64) (i32.const 1) (i64.const 1))",
        "(global i32 (i32.add (i32.const 1) (i32.const 2)))",
        "(func (param f64) (result i32) (i32.trunc_sat_f64_s (local.get 0)))",
    ] {
        let bytes = text(&format!("(component (core module {fields}))"));
        crate::admit::validate(FILE, &bytes).expect(fields);
        wasmtime::component::Component::from_binary(&engine, &bytes).expect(fields);
    }
}

/// What crosses from one component to another inside of a component is copied by modules that wasmtime generates.
#[test]
fn components_of_components_are_accepted() {
    let inner = |body: &str| {
        format!(
            r#"(core module $m (memory (export "m") 1) {body}
                 (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0)))
               (core instance $c (instantiate $m))"#
        )
    };
    let bytes = text(&format!(
        r#"(component
            (component $a {}
              (func (export "f") (param "s" string)
                (canon lift (core func $c "f") (memory $c "m") (realloc (func $c "realloc")))))
            (instance $a (instantiate $a))
            (component $b (import "f" (func $f (param "s" string)))
              (core module $m (memory (export "m") 1))
              (core instance $c (instantiate $m))
              (core func (canon lower (func $f) (memory $c "m"))))
            (instance (instantiate $b (with "f" (func $a "f")))))"#,
        inner(r#"(func (export "f") (param i32 i32))"#)
    ));
    crate::admit::validate(FILE, &bytes).expect("allowed");
    wasmtime::component::Component::from_binary(&super::engine(), &bytes).expect("compiled");
}

#[test]
fn async_components_are_refused() {
    let bytes = text("(component (type (stream u8)))");
    let problem = crate::admit::validate(FILE, &bytes).expect_err("async");
    assert_eq!(problem.field, "cm-async", "{problem}");
    assert!(wasmtime::component::Component::from_binary(&super::engine(), &bytes).is_err());
}

#[test]
fn a_damaged_component_is_a_problem() {
    let place = Place::new();
    let bytes = text("(component (core module (func (result i32))))");
    let problem = crate::admit::validate(FILE, &bytes).expect_err("invalid");
    assert!(problem.message.starts_with("the component is not valid: "), "{problem}");
    drop(place);
}

#[test]
fn a_trap_in_describe_is_a_problem_of_the_component_with_its_last_words() {
    let place = Place::new();
    let guest = Guest {
        imports: r#"(import "weir:detect/log@0.1.0" "write" (func $log (param i32 i32 i32)))"#,
        describe: "(call $log (i32.const 3) (i32.const 200) (i32.const 3)) unreachable",
        ..Guest::default()
    };
    let problem = only(place.refused(&guest.component()));
    assert!(problem.message.starts_with("describe: the plugin trapped ("), "{problem}");
    assert!(problem.message.ends_with("): pqa"), "{problem}");
    assert_eq!(problem.file, FILE);
}

#[test]
fn describe_is_granted_nothing_and_prepare_its_assets() {
    let place = Place::new();
    let imports = r#"(import "weir:detect/assets@0.1.0" "size" (func $size (param i32 i32 i32)))"#;
    let ask = "(call $size (i32.const 202) (i32.const 1) (i32.const 2048))";
    let describe = Guest { imports, describe: ask, ..Guest::default() };
    let problem = only(place.refused(&describe.component()));
    assert!(problem.message.starts_with("describe: describe asks the host for something"), "{problem}");
    let prepare = Guest {
        imports,
        // The asset is there and has five bytes, or it traps.
        prepare: "(call $size (i32.const 202) (i32.const 1) (i32.const 2048))
                  (if (i32.or (i32.eqz (i32.load8_u (i32.const 2048))) (i64.ne (i64.load (i32.const 2056)) (i64.const 5)))
                    (then unreachable))
                  i32.const 1024",
        ..Guest::default()
    };
    place.load(&prepare.component(), |_| ()).expect("prepared");
}

#[test]
fn a_configuration_that_the_plugin_refuses_is_a_problem_of_the_manifest() {
    let place = Place::new();
    let guest = Guest {
        more: r#"(data (i32.const 2048) "\01\00\00\00" "\00\00\00\00" "\10\08\00\00\08\00\00\00" "too high")"#,
        prepare: "i32.const 2048",
        ..Guest::default()
    };
    let problem = only(place.refused(&guest.component()));
    assert_eq!((problem.file.as_str(), problem.field.as_str()), ("scenario.toml", "config"));
    assert_eq!(problem.message, "too high");
}
