import { expect, test } from "vitest";
import { describesLock } from "../../tools/setup/modules.mjs";

const lock = {
  packages: {
    "": { version: "0.1.0" },
    "packages/one": { version: "0.1.0" },
    "node_modules/@atoll/one": {},
    "node_modules/a": { version: "1.0.0" },
    "node_modules/a-darwin": { version: "1.0.0", optional: true },
  },
};
const installed = {
  packages: { "node_modules/@atoll/one": {}, "node_modules/a": { version: "1.0.0" } },
};

test("an installation without the optional packages of other systems is current", () => {
  expect(describesLock(installed, lock)).toBe(true);
});

test.for([
  ["another version", { ...installed.packages, "node_modules/a": { version: "1.0.1" } }],
  ["a missing package", { "node_modules/@atoll/one": {} }],
  ["a missing workspace link", { "node_modules/a": { version: "1.0.0" } }],
  ["an extra package", { ...installed.packages, "node_modules/b": { version: "1.0.0" } }],
] as const)("%s makes it out of date", ([, packages]) => {
  expect(describesLock({ packages }, lock)).toBe(false);
});
