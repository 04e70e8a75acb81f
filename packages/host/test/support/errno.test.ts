import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";
import { hasErrno } from "../../src/support/errno.ts";
import { caught } from "./caught.ts";

test("an error of the system is recognized by its code", async () => {
  const error = await caught(readFile("/no/such/file"));
  expect(hasErrno(error, "ENOENT")).toBe(true);
  expect(hasErrno(error, "EACCES", "ENOENT")).toBe(true);
  expect(hasErrno(error, "EACCES")).toBe(false);
});

test.for([[undefined], [null], ["ENOENT"], [{ code: "ENOENT" }], [new Error("ENOENT")]])("%o is none", ([value]) => {
  expect(hasErrno(value, "ENOENT")).toBe(false);
});
