import { CreateRequest, isSandboxError, SpawnRequest } from "@atoll/protocol";
import { expect, test } from "vitest";
import { parseRequest } from "../../src/support/parse-request.ts";
import { caught } from "./caught.ts";

test("what is right comes back with its defaults", () => {
  expect(parseRequest(SpawnRequest, { argv: ["true"] }, "start a process")).toMatchObject({
    argv: ["true"],
    user: "user",
  });
});

test("what is wrong is named, each field by its path", async () => {
  const request = { limits: { cpus: 0, memoryBytes: 1.5 } };
  const error = await caught((async () => parseRequest(CreateRequest, request, "create a sandbox"))());
  expect(isSandboxError(error, "invalid_argument")).toBe(true);
  expect(error).toMatchObject({
    message: expect.stringMatching(/^Cannot create a sandbox: limits\.\w+: .*; limits\.\w+: /),
    details: {
      issues: expect.arrayContaining([
        { field: "limits.cpus", message: expect.any(String) },
        { field: "limits.memoryBytes", message: expect.any(String) },
      ]),
    },
  });
});

test("a field that does not exist is named", async () => {
  // A caller without types can send anything.
  const request = { imgae: "debian" } as object;
  const error = await caught((async () => parseRequest(CreateRequest, request, "create a sandbox"))());
  expect(isSandboxError(error, "invalid_argument") && error.message).toContain("imgae");
});
