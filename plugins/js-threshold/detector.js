// A detector in JavaScript: rows of the query `values` above a threshold become rows of `threshold_hits` and alarms.
// It is written against wit/README.md alone.
import log from "weir:detect/log@0.1.0";

const SEVERITIES = ["info", "warning", "minor", "major", "critical"];

/** What `prepare` made of the configuration. */
let config;

function describe() {
  return {
    name: "js-threshold",
    version: "0.1.0",
    outputs: [
      {
        name: "threshold_hits",
        fields: [
          { name: "at", kind: "timestamp", nullable: false },
          { name: "entity", kind: "text", nullable: false },
          { name: "value", kind: "float64", nullable: false },
        ],
      },
    ],
    alarms: [{ name: "threshold", key: ["entity"] }],
    inputs: [],
    queries: ["values"],
    rules: [],
    assets: [],
    state: null,
  };
}

function prepare(json) {
  const { threshold, severity = "major", ...unknown } = JSON.parse(json);
  for (const name of Object.keys(unknown)) throw fault("config", `unknown field '${name}'`);
  if (typeof threshold !== "number") throw fault("config", "threshold must be a number");
  if (!SEVERITIES.includes(severity)) throw fault("config", `severity must be one of ${SEVERITIES.join(", ")}`);
  config = { threshold, severity };
}

function detect(batch) {
  const at = batch.time();
  const query = batch.query("values");
  query.bind([{ name: "to", value: { tag: "timestamp", val: at } }]);
  const values = query.run();

  const entityColumn = column(values, "entity");
  const valueColumn = column(values, "value");
  const entities = texts(values.blobs(entityColumn));
  const numbers = values.float64s(valueColumn);
  const known = valid(values.validity(valueColumn));
  const named = valid(values.validity(entityColumn));
  const frame = values.id();

  const nameless = rows(entities.length, (row) => !named(row));
  if (nameless.length > 0) {
    batch.reject(nameless.map((row) => ({ frame, row })), "no entity");
  }
  const over = rows(entities.length, (row) => named(row) && known(row) && numbers[row] > config.threshold);
  if (over.length === 0) return "judged";

  const hits = values.take(over);
  const writer = batch.output("threshold_hits");
  writer.fill([{ name: "at", value: { tag: "timestamp", val: at } }], over.length);
  writer.copy("entity", hits, entityColumn);
  writer.copy("value", hits, valueColumn);
  writer.finish();

  batch.alarms(
    over.map((row) => ({
      name: "threshold",
      key: [entities[row]],
      action: { tag: "raise", val: config.severity },
      message: `${entities[row]}: ${numbers[row]} is above ${config.threshold}`,
      fields: [{ name: "value", value: { tag: "float64", val: numbers[row] } }],
      because: [{ frame, row }],
    })),
  );
  return "judged";
}

/** The interface takes nothing but a fault out of an export: anything else would be a trap without a text. */
function guarded(work) {
  return (...args) => {
    try {
      return work(...args);
    } catch (error) {
      if (["config", "input", "data", "internal"].includes(error?.tag)) throw error;
      const text = `${error?.message ?? error}\n${error?.stack ?? ""}`.trim();
      log.write("error", text);
      throw fault("internal", text);
    }
  };
}

function fault(tag, val) {
  return { tag, val };
}

function column(frame, name) {
  const index = frame.column(name);
  if (index === null || index === undefined) throw fault("config", `query 'values' answers no column '${name}'`);
  return index;
}

function rows(count, wanted) {
  return Array.from({ length: count }, (_, row) => row).filter(wanted);
}

/** Whether a row holds a value. */
function valid(bitmap) {
  return bitmap ? (row) => ((bitmap[row >> 3] >> (row & 7)) & 1) === 1 : () => true;
}

function texts({ offsets, data }) {
  return Array.from({ length: offsets.length - 1 }, (_, row) => utf8(data, offsets[row], offsets[row + 1]));
}

/** The engine has no TextDecoder; the host promises valid UTF-8. */
function utf8(bytes, from, to) {
  let text = "";
  for (let i = from; i < to; ) {
    const lead = bytes[i++];
    const more = lead < 0x80 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    let point = more === 0 ? lead : lead & (0x3f >> more);
    for (const end = i + more; i < end; ) point = (point << 6) | (bytes[i++] & 0x3f);
    text += String.fromCodePoint(point);
  }
  return text;
}

export const plugin = { describe, prepare: guarded(prepare), detect: guarded(detect) };
