import { expect, test } from "vitest";
import { thorough } from "../../../../tools/thoroughness.mjs";
import { counter, startCounter } from "../support/counter-app.ts";

const seed = Number(process.env["ATOLL_TEST_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const edits = thorough(60, 1_000);

/** The generator of Park and Miller: the same seed gives the same edits. */
function random(): (below: number) => number {
  let value = (seed % 2_147_483_646) + 1;
  return (below) => {
    value = (value * 48_271) % 2_147_483_647;
    return value % below;
  };
}

interface Code {
  version: number;
  factor: number;
}

const source = ({ version, factor }: Code): string =>
  counter({
    version,
    add: `state.count += by * ${factor};`,
    more: `codeChange: (old, state: Record<string, any>) => ({ ...state, path: [...(state.path ?? []), old] }),`,
  });

interface State {
  count: number;
  path?: number[];
}

test(`${edits} random edits leave what a model says (seed ${seed})`, async () => {
  const pick = random();
  let code: Code = { version: 1, factor: 1 };
  let state: State = { count: 0 };
  const generations = new Map<number, Code>();
  const path = "src/counter.ts";
  await using app = await startCounter({ [path]: source(code) }, { probationMs: 600_000, maxRestarts: 1_000_000 });
  const migrated = (to: Code): State =>
    to.version === code.version ? state : { ...state, path: [...(state.path ?? []), code.version] };
  const reload = async (to: Code): Promise<void> => {
    const { generation, result } = await app.reload({ [path]: source(to) });
    expect(result).toBe(to.version === code.version && to.factor === code.factor ? "no_change" : "reloaded");
    state = migrated(to);
    code = to;
    generations.set(generation, to);
  };
  generations.set(1, code);
  for (let edit = 0; edit < edits; edit += 1) {
    const kind = pick(8);
    if (kind <= 2) {
      const by = pick(100);
      state = { ...state, count: state.count + by * code.factor };
      expect(await app.call("counter", "add", by)).toBe(state.count);
    } else if (kind === 3) await reload({ ...code, factor: pick(5) });
    else if (kind === 4) await reload({ version: 1 + pick(4), factor: pick(5) });
    else if (kind === 5) {
      const broken = ["const = 1;", "throw new Error('no');", "import './none.ts';", "await Promise.reject(1);"][
        pick(4)
      ];
      const refused = app.reload({ [path]: `${source(code)} ${broken}` });
      await expect(refused).rejects.toMatchObject({ code: expect.stringMatching(/^(compile|reload)_failed$/) });
    } else if (kind === 6) {
      const numbers = app.manager.listVersions(app.id).map(({ number }) => number);
      const number = numbers[pick(numbers.length)] ?? 1;
      const to = generations.get(number);
      if (to === undefined) throw new Error(`The model has no generation ${number}`);
      await app.manager.rollback(app.id, { generation: number });
      state = migrated(to);
      code = to;
      expect(app.info.generation).toBe(number);
    } else await app.manager.restart(app.id);
    expect(await app.call("counter", "state")).toEqual(state);
  }
  expect(app.info.state).toBe("running");
});
