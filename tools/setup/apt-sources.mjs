/**
 * Derives an apt source for another suite from one that the machine already has, so that the mirror, signing key and
 * architectures stay the administrator's choice.
 */

/**
 * @typedef {object} SourceFile
 * @property {string} name the file name; its ending decides the format
 * @property {string} text
 */

/**
 * @param {readonly SourceFile[]} files
 * @param {{ from: string, to: string }} suites
 * @returns {{ extension: "sources" | "list", text: string } | undefined} undefined when no enabled entry has the suite
 * `from`
 */
export function deriveSource(files, { from, to }) {
  for (const file of files) {
    if (file.name.endsWith(".sources")) {
      const text = deriveFromStanzas(file.text, from, to);
      if (text !== undefined) return { extension: "sources", text };
    } else if (file.name.endsWith(".list")) {
      const text = deriveFromLines(file.text, from, to);
      if (text !== undefined) return { extension: "list", text };
    }
  }
  return undefined;
}

/**
 * @param {string} text one or more deb822 stanzas
 * @param {string} from
 * @param {string} to
 */
function deriveFromStanzas(text, from, to) {
  for (const stanza of text.split(/\n(?:[ \t]*\n)+/)) {
    const fields = parseStanza(stanza);
    const isUsable =
      words(fields.get("types")).includes("deb") &&
      words(fields.get("suites")).includes(from) &&
      !/^(no|false|0|off|disable|without)$/i.test(fields.get("enabled")?.trim() ?? "yes");
    if (!isUsable) continue;
    fields.set("types", " deb");
    fields.set("suites", ` ${to}`);
    return `${[...fields].map(([name, value]) => `${capitalised(name)}:${value}`).join("\n")}\n`;
  }
  return undefined;
}

/**
 * Parses one stanza. Field names are case-insensitive. A value keeps its continuation lines, because an embedded
 * signing key is written in them.
 *
 * @param {string} stanza
 */
function parseStanza(stanza) {
  /** @type {Map<string, string>} */
  const fields = new Map();
  let current = "";
  for (const line of stanza.split("\n")) {
    if (line.startsWith("#")) continue;
    const head = /^([^\s:]+):(.*)$/.exec(line);
    if (head !== null) {
      current = String(head[1]).toLowerCase();
      fields.set(current, String(head[2]));
    } else if (/^[ \t]/.test(line) && current !== "") {
      fields.set(current, `${fields.get(current)}\n${line}`);
    }
  }
  return fields;
}

/**
 * @param {string} text one entry per line
 * @param {string} from
 * @param {string} to
 */
function deriveFromLines(text, from, to) {
  for (const line of text.split("\n")) {
    const entry = /^\s*deb\s+(\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s+([^#]*[^#\s])/.exec(line);
    if (entry === null || entry[3] !== from) continue;
    return `deb ${entry[1] ?? ""}${entry[2]} ${to} ${entry[4]}\n`;
  }
  return undefined;
}

/** @param {string | undefined} value */
function words(value) {
  return value?.trim().split(/\s+/) ?? [];
}

/** @param {string} field */
function capitalised(field) {
  if (field === "uris") return "URIs";
  return field.replace(/(^|-)[a-z]/g, (start) => start.toUpperCase());
}
