import { describe, expect, test } from "vitest";
import { CreateRequest, SandboxLimits, SandboxRecord, sandboxStates, type SandboxState } from "../src/index.ts";

const common = {
  version: 1,
  id: "abcdefghij0123456789",
  driver: "gvisor",
  template: "host",
  limits: SandboxLimits.parse({}),
  createdAtMs: 1_700_000_000_000,
  labels: { purpose: "test" },
};
const containerId = "atoll-abcdefghij0123456789wxyz";
const container = { id: containerId, pid: 1234, startTicks: 5678, bootId: "b007" };
const reason = { kind: "asked", message: "it was killed on request" };

/** The fields of a record in each state, without those that all states have. */
const held: Record<SandboxState, Record<string, unknown>> = {
  creating: { containerId },
  running: { container },
  pausing: { container, checkpoint: 3 },
  paused: { checkpoint: 3 },
  resuming: { checkpoint: 3, containerId },
  killing: { reason },
  killed: { reason, endedAtMs: 1_700_000_000_001 },
  failed: { reason, endedAtMs: 1_700_000_000_001, survives: ["files"] },
  released: {},
};
const everything = { containerId, container, checkpoint: 3, reason, endedAtMs: 1_700_000_000_001, survives: [] };

describe("the stored record", () => {
  test.for(sandboxStates)("%s: a record is the same after it was written and read", (state) => {
    const record = { ...common, state, ...held[state] };
    expect(SandboxRecord.parse(JSON.parse(JSON.stringify(record)))).toEqual(record);
  });

  test.for(sandboxStates)("%s: each field is required", (state) => {
    for (const missing of [...Object.keys(common), ...Object.keys(held[state])]) {
      const { [missing]: _, ...rest } = { ...common, state, ...held[state] } as Record<string, unknown>;
      expect(SandboxRecord.safeParse(rest).success).toBe(false);
    }
  });

  test.for(sandboxStates)("%s: a field of another state is refused", (state) => {
    const foreign = Object.entries(everything).filter(([field]) => !(field in held[state]));
    const accepted = foreign.filter(
      ([field, value]) => SandboxRecord.safeParse({ ...common, state, ...held[state], [field]: value }).success,
    );
    expect(accepted).toEqual([]);
  });

  test("a record of another version is refused", () => {
    expect(SandboxRecord.safeParse({ ...common, version: 2, state: "running", container }).success).toBe(false);
  });
});

describe("a request to create a sandbox", () => {
  test("an empty request is enough", () => {
    expect(CreateRequest.parse({})).toEqual({
      template: "host",
      driver: "gvisor",
      limits: SandboxLimits.parse({}),
      labels: {},
    });
  });

  test.for([
    { what: "an unknown field", request: { image: "debian" } },
    { what: "an unknown driver", request: { driver: "qemu" } },
    { what: "a template that is a path", request: { template: "../host" } },
    { what: "an unknown limit", request: { limits: { cpu: 1 } } },
    { what: "a label without a name", request: { labels: { "": "x" } } },
    { what: "a label that is too long", request: { labels: { a: "x".repeat(256) } } },
    {
      what: "too many labels",
      request: { labels: Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`l${i}`, ""])) },
    },
  ])("$what is refused", ({ request }) => {
    expect(CreateRequest.safeParse(request).success).toBe(false);
  });
});
