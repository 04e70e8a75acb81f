import { constants } from "node:os";
import { describe, expect, test } from "vitest";
import { signalName, signalNumbers, SpawnRequest, type SignalName } from "../src/index.ts";

describe("signals", () => {
  test.for(Object.entries(signalNumbers))("%s is %i, as on this machine", ([name, number]) => {
    const here: Record<string, number> = constants.signals;
    expect(here[name]).toBe(number);
    expect(signalName(number)).toBe(name);
  });

  test("the numbers 1 to 31 all have a name", () => {
    const numbers = Object.values(signalNumbers).toSorted((a, b) => a - b);
    expect(numbers).toEqual(Array.from({ length: 31 }, (_, index) => index + 1));
  });

  test("a real-time signal is named by its number", () => {
    expect(signalName(34)).toBe("SIGRT34");
    expect(signalName(64)).toBe("SIGRT64");
  });

  test("a signal for which Linux has two names gets the common one", () => {
    const names = Object.keys(signalNumbers) as SignalName[];
    expect(names).toContain("SIGABRT");
    expect(names).not.toContain("SIGIOT");
  });
});

describe("a request to start a process", () => {
  test("a program without arguments is enough", () => {
    expect(SpawnRequest.parse({ argv: ["true"] })).toEqual({
      argv: ["true"],
      env: {},
      cwd: "",
      user: "user",
      stdin: false,
      graceMs: 2_000,
      windowBytes: 256 * 1024,
    });
  });

  test("an unknown field is refused by its name", () => {
    const result = SpawnRequest.safeParse({ argv: ["true"], shell: true });
    expect(result.error?.issues).toEqual([expect.objectContaining({ code: "unrecognized_keys", keys: ["shell"] })]);
  });

  test.for([
    { what: "no program", request: { argv: [] } },
    { what: "a NUL in an argument", request: { argv: ["echo", "a\0b"] } },
    { what: "a NUL in the environment", request: { argv: ["env"], env: { A: "b\0c" } } },
    { what: "a variable with an '=' in its name", request: { argv: ["env"], env: { "A=B": "c" } } },
    { what: "a variable without a name", request: { argv: ["env"], env: { "": "c" } } },
    { what: "a NUL in the working directory", request: { argv: ["pwd"], cwd: "/a\0" } },
    { what: "a NUL in the user", request: { argv: ["id"], user: "root\0" } },
    { what: "a terminal without columns", request: { argv: ["sh"], pty: { rows: 24, cols: 0 } } },
    { what: "a time limit of zero", request: { argv: ["true"], timeoutMs: 0 } },
    { what: "a time limit that does not fit the wire", request: { argv: ["true"], timeoutMs: 0x1_0000_0000 } },
    { what: "a window smaller than a page", request: { argv: ["true"], windowBytes: 4095 } },
    { what: "a window larger than the guest's largest", request: { argv: ["true"], windowBytes: 1024 * 1024 + 1 } },
  ])("$what is refused", ({ request }) => {
    expect(SpawnRequest.safeParse(request).success).toBe(false);
  });
});
