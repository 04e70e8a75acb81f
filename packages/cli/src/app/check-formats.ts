import { join } from "node:path";
import type { Diagnostic } from "@atoll/live";
import type { Cli } from "../cli.ts";
import { counted } from "../output/amount.ts";
import { printable } from "../output/printable.ts";

/** One mistake as a line, or as JSON for all of them together. */
export const checkFormats = {
  json: (_folder: string, diagnostic: Diagnostic): string => `${JSON.stringify(diagnostic)}\n`,
  /** An annotation of GitHub, beside the line that it is about. */
  github: (folder: string, { file, line, column, severity, message }: Diagnostic): string => {
    const place = `file=${escapeProperty(join(folder, file))},line=${line},col=${column}`;
    return `::${severity} ${place}::${escapeData(message)}\n`;
  },
  /** What compilers print, which editors know how to follow. */
  unix: (folder: string, { file, line, column, severity, message }: Diagnostic): string =>
    `${join(folder, file)}:${line}:${column}: ${severity}: ${printable(message)}\n`,
};

/** All mistakes for a person, with the lines around them. */
export function reportFor(cli: Cli, folder: string, diagnostics: readonly Diagnostic[]): string {
  const each = diagnostics.map(({ file, line, column, severity, message, frame }) => {
    const place = printable(`${join(folder, file)}:${line}:${column}`);
    const title = `${place}: ${cli.style(severity === "error" ? "bad" : "busy", severity)}: ${printable(message)}\n`;
    const lines =
      frame === "" ? [] : frame.split("\n").map((text) => `  ${text.split("\t").map(printable).join("\t")}\n`);
    return title + lines.join("");
  });
  const errors = diagnostics.filter(({ severity }) => severity === "error").length;
  const warnings = diagnostics.length - errors;
  return `${each.join("")}${counted(errors, "error")}, ${counted(warnings, "warning")}\n`;
}

const escapeData = (text: string): string =>
  text.replaceAll("%", "%25").replaceAll("\r", "%0D").replaceAll("\n", "%0A");
const escapeProperty = (text: string): string => escapeData(text).replaceAll(":", "%3A").replaceAll(",", "%2C");
