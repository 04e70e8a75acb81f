import { describe, expect, test } from "vitest";
import { ContainerId, SandboxId, StreamId, TemplateName } from "../src/index.ts";

const twenty = "abcdefghij0123456789";

describe("the syntax of names", () => {
  test.for([
    { schema: SandboxId, kind: "sandbox id", value: twenty },
    { schema: ContainerId, kind: "container id", value: `atoll-${twenty}wxyz` },
    { schema: TemplateName, kind: "template name", value: "host" },
    { schema: TemplateName, kind: "template name", value: "3.12-slim_x.y" },
    { schema: TemplateName, kind: "template name", value: "a".repeat(63) },
    { schema: StreamId, kind: "stream id", value: 1 },
    { schema: StreamId, kind: "stream id", value: 0x7fff_ffff },
  ])("$value is a $kind", ({ schema, value }) => {
    expect(schema.parse(value)).toBe(value);
  });

  test.for([
    { schema: SandboxId, kind: "sandbox id", value: "" },
    { schema: SandboxId, kind: "sandbox id", value: twenty.slice(1) },
    { schema: SandboxId, kind: "sandbox id", value: `${twenty}a` },
    { schema: SandboxId, kind: "sandbox id", value: twenty.toUpperCase() },
    { schema: SandboxId, kind: "sandbox id", value: "../../../../etc/pass" },
    { schema: SandboxId, kind: "sandbox id", value: `${twenty}\n` },
    { schema: SandboxId, kind: "sandbox id", value: 12 },
    { schema: ContainerId, kind: "container id", value: `${twenty}wxyz` },
    { schema: ContainerId, kind: "container id", value: `atoll-${twenty}` },
    { schema: ContainerId, kind: "container id", value: `atoll-${twenty}wxyz\n` },
    { schema: TemplateName, kind: "template name", value: "" },
    { schema: TemplateName, kind: "template name", value: ".." },
    { schema: TemplateName, kind: "template name", value: "-rf" },
    { schema: TemplateName, kind: "template name", value: "a/b" },
    { schema: TemplateName, kind: "template name", value: "Host" },
    { schema: TemplateName, kind: "template name", value: "a".repeat(64) },
    { schema: StreamId, kind: "stream id", value: 0 },
    { schema: StreamId, kind: "stream id", value: 0x8000_0000 },
    { schema: StreamId, kind: "stream id", value: 1.5 },
  ])("$value is not a $kind", ({ schema, value }) => {
    expect(schema.safeParse(value).success).toBe(false);
  });
});
