import { expectTypeOf, test } from "vitest";
import { defineService, type Ref } from "../../src/app/service.ts";

const counter = defineService({
  init: (argument: { initial: number }) => ({ count: argument.initial }),
  call: {
    add(state, by: number): number {
      state.count += by;
      return state.count;
    },
    async read(state): Promise<{ count: number }> {
      return { count: state.count };
    },
  },
  cast: {
    reset(state, to: number): void {
      state.count = to;
    },
  },
});

test("a call has the types of its handler", () => {
  type Counter = Ref<typeof counter>;
  expectTypeOf<Counter["call"]>().toBeFunction();
  const check = (ref: Counter): void => {
    expectTypeOf(ref.call("add", 1)).toEqualTypeOf<Promise<number>>();
    expectTypeOf(ref.call("read")).toEqualTypeOf<Promise<{ count: number }>>();
    expectTypeOf(ref.cast("reset", 0)).toEqualTypeOf<void>();
    // @ts-expect-error A handler that takes a number is not given a text.
    void ref.call("add", "1");
    // @ts-expect-error There is no such handler.
    void ref.call("subtract", 1);
  };
  expectTypeOf(check).toBeFunction();
});
