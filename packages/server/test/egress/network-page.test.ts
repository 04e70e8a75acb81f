import { readFileSync } from "node:fs";
import { compilePolicy } from "@atoll/guard";
import { expect, test } from "vitest";

const page = readFileSync(new URL("../../../../docs/network.md", import.meta.url), "utf8");
const rows = [...page.matchAll(/^\| `(.+?)` +\| `(.+?)` port (\d+) +\| (allowed|refused) +\|$/gm)].map(
  ([, rule = "", host = "", port, answer]) => ({ rule, host, port: Number(port), answer }),
);

test("the page has a table of rules", () => {
  expect(rows.length).toBeGreaterThan(10);
});

test.for(rows)("$rule, asked for $host port $port: $answer", ({ rule, host, port, answer }) => {
  const { allowed } = compilePolicy({ allow: [rule], deny: [] }).decide(host, port);
  expect(allowed ? "allowed" : "refused").toBe(answer);
});
