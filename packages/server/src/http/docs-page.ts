import { errorCodes, routes, type Route, type RouteName } from "@atoll/protocol";
import { z } from "zod";
import { tagNames, tagOf } from "./openapi.ts";

/** Returns the contract for people: one page that loads nothing and runs nothing. */
export function docsPage(): string {
  const rows = Object.entries(routes) as [RouteName, Route][];
  const tags = tagNames.map((tag) => ({ tag, rows: rows.filter(([, route]) => tagOf(route) === tag) }));
  const sections = tags.map(
    (group) => `<section id="${group.tag}"><h2>${group.tag}</h2>${group.rows.map(endpoint).join("\n")}</section>`,
  );
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Atoll: HTTP interface</title><style>${style}</style></head><body>
<header><h1>Atoll</h1><p>Run code you do not trust on machines you own. The same as a document for programs:
<a href="/openapi.json">/openapi.json</a>.</p></header>
<nav>${tags.map(({ tag }) => `<a href="#${tag}">${tag}</a>`).join(" ")} <a href="#errors">errors</a></nav>
<main>
<section><h2>First steps</h2><pre>${escape(firstSteps)}</pre>
<p>Every request but those marked <i>public</i>, and <i>server</i> for what servers ask each other, needs
<code>Authorization: Bearer</code> with an API key, or with a sandbox's own token for that sandbox.
Bodies are JSON where nothing else is said; a field that does not exist is refused by name. Streams
(<code>application/x-ndjson</code>) have one JSON value per line, and a heartbeat when nothing happens.</p></section>
${sections.join("\n")}
<section id="errors"><h2>errors</h2><table><tr><th>code</th><th>status</th><th>worth a retry</th></tr>
${Object.entries(errorCodes).map(errorRow).join("\n")}</table></section>
</main></body></html>
`;
}

const firstSteps = `export KEY=atk_…                                  # printed by the first start
curl -H "Authorization: Bearer $KEY" -X POST localhost:4600/run \\
     -H 'Content-Type: application/json' -d '{"language":"python","code":"print(6*7)"}'

curl -H "Authorization: Bearer $KEY" -X POST localhost:4600/sandboxes
curl -H "Authorization: Bearer $KEY" -H 'Accept: application/x-ndjson' -N \\
     -H 'Content-Type: application/json' -d '{"shell":"for i in 1 2 3; do echo $i; sleep 1; done"}' \\
     localhost:4600/sandboxes/<id>/commands`;

function endpoint([name, route]: [RouteName, Route]): string {
  const parts = [
    fields("query", route.query),
    typeof route.body === "string" ? `<p>Body: ${route.body}, a stream of any length.</p>` : fields("body", route.body),
    reply(route),
  ];
  return `<details id="${name}">
<summary><b class="${route.method}">${route.method}</b> <code>${escape(route.path)}</code>
<span>${inline(route.summary)}</span></summary><p><code>${name}</code> · ${
    route.verb === "public" || route.verb === "server" ? `<i>${route.verb}</i>` : `verb <code>${route.verb}</code>`
  }${route.isIdempotent === true ? " · honours <code>Idempotency-Key</code>" : ""}</p>${parts.join("")}</details>`;
}

function fields(title: string, schema: z.ZodType | undefined): string {
  if (schema === undefined) return "";
  const { properties = {}, required = [] } = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
  const rows = Object.entries(properties).map(([name, field]) => {
    const { default: initial, ...rest } = typeof field === "object" ? field : {};
    const need = required.includes(name) ? "required" : initial === undefined ? "" : JSON.stringify(initial);
    return `<tr><td><code>${escape(name)}</code></td><td>${escape(typeText(rest))}</td><td>${escape(need)}</td></tr>`;
  });
  if (rows.length === 0) return "";
  return `<h4>${title}</h4><table><tr><th>field</th><th>type</th><th>default</th></tr>${rows.join("")}</table>`;
}

function reply({ reply, status }: Route): string {
  const code = status ?? (reply === "empty" ? 204 : 200);
  if (typeof reply === "string") return `<p>Answer: ${code}, ${reply}.</p>`;
  const schema = typeText(z.toJSONSchema(reply, { io: "output", unrepresentable: "any" }));
  return `<p>Answer: ${code}</p><pre>${escape(schema)}</pre>`;
}

/** Writes a JSON schema as people write types. */
function typeText(schema: z.core.JSONSchema._JSONSchema | undefined, depth = 0): string {
  if (schema === undefined || typeof schema === "boolean") return "any";
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum !== undefined) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices !== undefined) return choices.map((choice) => typeText(choice, depth)).join(" | ");
  if (schema.type === "array") return `${typeText(itemOf(schema), depth)}[]`;
  if (schema.type !== "object") return String(schema.type ?? "any");
  const entries = Object.entries(schema.properties ?? {});
  if (entries.length === 0) return typeof schema.additionalProperties === "object" ? "{ [name]: string }" : "{ … }";
  const indent = "  ".repeat(depth + 1);
  const lines = entries.map(([name, field]) => {
    const mark = schema.required?.includes(name) === true ? "" : "?";
    return `${indent}${name}${mark}: ${typeText(field, depth + 1)}`;
  });
  return `{\n${lines.join("\n")}\n${"  ".repeat(depth)}}`;
}

function itemOf(schema: z.core.JSONSchema.JSONSchema): z.core.JSONSchema._JSONSchema | undefined {
  return Array.isArray(schema.items) ? undefined : schema.items;
}

function errorRow([code, { status, retryable }]: [string, { status: number; retryable: boolean }]): string {
  return `<tr><td><code>${code}</code></td><td>${status}</td><td>${retryable ? "yes" : ""}</td></tr>`;
}

/** Escapes text and marks `code` between backticks. */
function inline(text: string): string {
  return escape(text).replaceAll(/`([^`]+)`/g, "<code>$1</code>");
}

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

const style = `
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
nav { position: sticky; top: 0; padding: .5rem 0; background: Canvas; border-bottom: 1px solid var(--line); }
nav a { margin-right: .8rem; } code, pre { font: 14px/1.5 ui-monospace, monospace; }
pre { background: var(--soft); padding: .8rem; overflow-x: auto; border-radius: 6px; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .4rem 0; padding: 0 .8rem; }
summary { padding: .5rem 0; cursor: pointer; } summary span { opacity: .75; margin-left: .5rem; }
summary b { display: inline-block; min-width: 4.2rem; font: 600 13px ui-monospace, monospace; }
.GET { color: #2a7ae2; } .POST { color: #1a8f4c; } .PUT, .PATCH { color: #b7791f; } .DELETE { color: #c53030; }
table { border-collapse: collapse; margin: .4rem 0 1rem; }
td, th { border: 1px solid var(--line); padding: .2rem .6rem; text-align: left; }
h4 { margin: .6rem 0 .2rem; }`;
