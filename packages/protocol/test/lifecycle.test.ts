import { describe, expect, test } from "vitest";
import {
  actions,
  assertAccepts,
  isSandboxError,
  nextState,
  sandboxEvents,
  sandboxStates,
  transitions,
  type SandboxAction,
  type SandboxEvent,
  type SandboxState,
} from "../src/index.ts";
import { readDocument, tableUnder } from "./support/documents.ts";

const rows: Record<SandboxState, Partial<Record<SandboxEvent, SandboxState>>> = transitions;
const pairs = sandboxStates.flatMap((state) =>
  sandboxEvents.map((event) => ({ state, event, next: rows[state][event] })),
);
const known = pairs.flatMap(({ state, event, next }) => (next === undefined ? [] : [{ state, event, next }]));
const unknown = pairs.filter(({ next }) => next === undefined);

describe("transitions", () => {
  test.for(known)("$state + $event -> $next", ({ state, event, next }) => {
    expect(nextState(state, event)).toBe(next);
  });

  test.for(unknown)("$state + $event is a plain error", ({ state, event }) => {
    const error = caught(() => {
      nextState(state, event);
    });
    expect(error).toEqual(new Error(`No transition: ${state} + ${event}`));
    expect(isSandboxError(error)).toBe(false);
  });

  test("every state can be reached from the first one", () => {
    const reached = new Set<SandboxState>(["creating"]);
    // A loop over a set also visits the members that are added during it.
    for (const state of reached) for (const next of Object.values(rows[state])) reached.add(next);
    expect([...reached].toSorted()).toEqual(sandboxStates.toSorted());
  });

  test("a sandbox can be killed in every state but the final ones, which have no transitions", () => {
    const killable = sandboxStates.filter((state) => rows[state].kill === "killing");
    expect(killable).toEqual(sandboxStates.filter((state) => state !== "killed" && state !== "released"));
    expect([rows.killed, rows.released]).toEqual([{}, {}]);
  });

  test("the page has the same table, in the same order", () => {
    const documented = tableUnder(readDocument("lifecycle.md"), "Transitions").map(([state, event, next]) => ({
      state,
      event,
      next,
    }));
    const coded = sandboxStates.flatMap((state) =>
      Object.entries(rows[state]).map(([event, next]) => ({ state, event, next })),
    );
    expect(documented).toEqual(coded);
  });

  test("the page explains every state, in the same order", () => {
    const documented = tableUnder(readDocument("lifecycle.md"), "States").map(([state]) => state);
    expect(documented).toEqual(sandboxStates);
  });
});

const asked = sandboxStates.flatMap((state) =>
  (Object.keys(actions) as SandboxAction[]).map((action) => {
    const allowed: readonly SandboxState[] = actions[action];
    return { state, action, allowed, isAllowed: allowed.includes(state) };
  }),
);

describe("actions", () => {
  test.for(asked.filter(({ isAllowed }) => isAllowed))("$action: accepted while $state", ({ state, action }) => {
    expect(() => {
      assertAccepts({ id: "s1", state }, action);
    }).not.toThrow();
  });

  test.for(asked.filter(({ isAllowed }) => !isAllowed))(
    "$action: refused while $state",
    ({ state, action, allowed }) => {
      const error = caught(() => {
        assertAccepts({ id: "s1", state }, action);
      });
      expect(isSandboxError(error, "invalid_state")).toBe(true);
      expect(error).toMatchObject({
        message: `Cannot ${action} sandbox s1: it is ${state}`,
        details: { sandboxId: "s1", action, state, allowed },
        suggestion: expect.stringContaining(allowed.join(" or ")),
      });
    },
  );

  test("the page has the same table, in the same order", () => {
    const documented = tableUnder(readDocument("lifecycle.md"), "What may be asked");
    const coded = Object.entries(actions).map(([action, allowed]) => [
      action,
      allowed.length === sandboxStates.length ? "every state" : allowed.join(", "),
    ]);
    expect(documented).toEqual(coded);
  });
});

function caught(run: () => void): unknown {
  try {
    run();
  } catch (error) {
    return error;
  }
  throw new Error("Nothing was thrown");
}
