import { describe, expect, test } from "vitest";
import { CreateRequest, SandboxLimits, type SandboxLimitsInput } from "../src/index.ts";

const MiB = 1024 * 1024;

describe("limits", () => {
  test("without limits the defaults apply, and only the lifetime is unlimited", () => {
    expect(SandboxLimits.parse({})).toEqual({
      memoryBytes: 1024 * MiB,
      cpus: 2,
      processes: 512,
      diskBytes: 4096 * MiB,
      tmpBytes: 256 * MiB,
    });
  });

  test("a sandbox that is created without limits has the defaults", () => {
    expect(CreateRequest.parse({}).limits).toEqual(SandboxLimits.parse({}));
  });

  test("giving one limit leaves the others at their defaults", () => {
    expect(SandboxLimits.parse({ cpus: 0.5 })).toEqual({ ...SandboxLimits.parse({}), cpus: 0.5 });
  });

  test("an unknown field is refused by its name", () => {
    const result = SandboxLimits.safeParse({ memoryByte: 64 * MiB });
    expect(result.error?.issues).toEqual([
      expect.objectContaining({
        code: "unrecognized_keys",
        keys: ["memoryByte"],
        message: expect.stringContaining("memoryByte"),
      }),
    ]);
  });

  test.for<{ field: keyof SandboxLimitsInput; lowest: number; highest?: number }>([
    { field: "memoryBytes", lowest: 64 * MiB, highest: 1024 * 1024 * MiB },
    { field: "cpus", lowest: 0.05, highest: 1024 },
    { field: "processes", lowest: 8, highest: 100_000 },
    { field: "diskBytes", lowest: MiB, highest: 64 * 1024 * 1024 * MiB },
    { field: "fileBytes", lowest: 4096 },
    { field: "tmpBytes", lowest: MiB },
    { field: "lifetimeMs", lowest: 1, highest: 365 * 24 * 3_600_000 },
  ])("$field is accepted from $lowest to $highest and not beyond", ({ field, lowest, highest }) => {
    const accepts = (value: unknown): boolean => SandboxLimits.safeParse({ [field]: value }).success;
    expect(accepts(lowest)).toBe(true);
    expect(accepts(lowest - 0.01)).toBe(false);
    expect(accepts(lowest - 1)).toBe(false);
    expect(accepts(highest ?? Number.MAX_SAFE_INTEGER)).toBe(true);
    if (highest !== undefined) expect(accepts(highest + 1)).toBe(false);
    const nonsense = [Number.NaN, Number.POSITIVE_INFINITY, -lowest, String(lowest), null];
    expect(nonsense.filter(accepts)).toEqual([]);
  });

  test("a fraction of a byte is refused", () => {
    expect(SandboxLimits.safeParse({ memoryBytes: 64 * MiB + 0.5 }).success).toBe(false);
  });
});
