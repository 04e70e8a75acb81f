import { errorCodes, SandboxError, type ErrorCode } from "@atoll/protocol";
import { expect, test } from "vitest";
import { classifyError, errorKinds, suggestRecovery, type RecoveryContext } from "../../src/recovery/classify.ts";

const error = (code: ErrorCode, details = {}): SandboxError => new SandboxError(code, "Cannot", { details });

test("every code of the project's table has a kind, and what is in no table is an error of the system", () => {
  for (const code of Object.keys(errorCodes) as ErrorCode[]) expect(errorKinds).toContain(classifyError(error(code)));
  expect(classifyError(new TypeError("of the host"))).toBe("system");
  expect(classifyError(error("compile_failed"))).toBe("compilation");
  expect(classifyError(error("compile_failed", { kind: "security" }))).toBe("security");
});

test.for<[ErrorCode, RecoveryContext, string]>([
  ["compile_failed", { isRunning: true }, "rollback"],
  ["compile_failed", {}, "terminate"],
  ["reload_failed", { isRunning: true }, "rollback"],
  ["handler_failed", { isInProbation: true }, "rollback"],
  ["handler_failed", { attempts: 2 }, "restart"],
  ["handler_failed", { attempts: 3, hasLastGood: true }, "rollback"],
  ["handler_failed", { attempts: 3 }, "terminate"],
  ["handler_failed", { attempts: 3, maxRestarts: 5 }, "restart"],
  ["limit_reached", {}, "restart"],
  ["limit_reached", { attempts: 9, hasLastGood: true }, "rollback"],
  ["guest_violation", { hasLastGood: true, isInProbation: true }, "isolate"],
  ["unavailable", { attempts: 4 }, "retry"],
  ["unavailable", { attempts: 5 }, "terminate"],
  ["internal", {}, "restart"],
])("%s with %o is followed by %s", ([code, context, recovery]) => {
  expect(suggestRecovery(error(code), context)).toBe(recovery);
});
