import { describe, expect, test, vi } from "vitest";
import { errorCodes, isSandboxError, SandboxError, type ErrorCode } from "../src/index.ts";
import { readDocument } from "./support/documents.ts";

const codes = Object.keys(errorCodes) as ErrorCode[];

describe("SandboxError", () => {
  test("it reads as an error with a code, a cause and its row of the table", () => {
    const cause = new Error("the reason");
    const error = new SandboxError("in_use", "Cannot move: it is held", {
      cause,
      suggestion: "Let go.",
      details: { by: 7 },
    });
    expect(error).toBeInstanceOf(Error);
    expect(error).toMatchObject({
      name: "SandboxError",
      code: "in_use",
      message: "Cannot move: it is held",
      suggestion: "Let go.",
      details: { by: 7 },
      status: 409,
      retryable: true,
      docs: "docs/errors.md#in_use",
    });
    expect(error.cause).toBe(cause);
  });

  test("an error without a cause has no field for it", () => {
    expect("cause" in new SandboxError("internal", "Cannot go on")).toBe(false);
  });

  test("the name of an error is not among its own fields", () => {
    expect(Object.keys(new SandboxError("internal", "Cannot go on"))).not.toContain("name");
  });

  test("the JSON of an error has what a caller may see, and neither stack nor cause", () => {
    const error = new SandboxError("start_failed", "Cannot start", {
      cause: new Error("the password is 1234"),
      suggestion: "Look.",
      details: { phase: "mounts" },
    });
    const wire: unknown = JSON.parse(JSON.stringify(error));
    expect(wire).toEqual({
      code: "start_failed",
      message: "Cannot start",
      suggestion: "Look.",
      retryable: true,
      details: { phase: "mounts" },
      docs: "docs/errors.md#start_failed",
    });
  });

  test("the JSON of an error without a suggestion has no field for it", () => {
    expect(new SandboxError("internal", "Cannot go on").toJSON()).not.toHaveProperty("suggestion");
  });
});

describe("isSandboxError", () => {
  test("the error of another copy of this package is recognised", async () => {
    vi.resetModules();
    const copy = await import("../src/errors.ts");
    const foreign = new copy.SandboxError("not_found", "Cannot find it");
    expect(foreign).not.toBeInstanceOf(SandboxError);
    expect(isSandboxError(foreign)).toBe(true);
    expect(isSandboxError(foreign, "not_found")).toBe(true);
    expect(isSandboxError(foreign, "internal")).toBe(false);
  });

  test.for([[undefined], [null], ["not_found"], [404], [{}], [new Error("not_found")], [{ code: "not_found" }]])(
    "%o is not a SandboxError",
    ([value]) => {
      expect(isSandboxError(value)).toBe(false);
      expect(isSandboxError(value, "not_found")).toBe(false);
    },
  );
});

describe("the page", () => {
  const page = readDocument("errors.md");
  const sections = page
    .split(/^## /m)
    .slice(1)
    .map((section) => ({ title: section.slice(0, section.indexOf("\n")), body: section.slice(section.indexOf("\n")) }));

  test("the page has one section per code, in the order of the table", () => {
    expect(sections.map(({ title }) => title)).toEqual(codes);
  });

  test.for(sections)("$title: status and retry are those of the table", ({ title, body }) => {
    const { status, retryable } = errorCodes[title as ErrorCode];
    expect(body.trim()).toMatch(new RegExp(`^Status ${status}, ${retryable ? "" : "not "}retryable\\. `));
  });
});
