import * as fc from "fast-check";
import type { Disaster, SimulationPlan } from "./simulation.ts";
import type { Fate } from "./unreliable-store.ts";

/** For how long things go wrong. */
export const troubleMs = 12_000;

const longestDisasterMs = 3000;

const upTo = (max: number): fc.Arbitrary<number> => fc.integer({ min: 1, max });

/** Most calls are quick, and a few are slower than any lease is valid. */
const wildDelayMs = fc.oneof({ weight: 12, arbitrary: upTo(20) }, { weight: 3, arbitrary: upTo(300) }, upTo(3000));

const wildFate: fc.Arbitrary<Fate> = fc.record({
  requestMs: wildDelayMs,
  answerMs: wildDelayMs,
  kind: fc.oneof(
    { weight: 10, arbitrary: fc.constant<Fate["kind"]>("fine") },
    fc.constantFrom<Fate["kind"]>("request_lost", "answer_lost", "reset", "refused"),
  ),
  againMs: fc.option(wildDelayMs, { nil: undefined, freq: 6 }),
});

/** Requests arrive at once, and some answers take nearly as long as a caller waits for them. */
const lateAnswer: fc.Arbitrary<Fate> = fc.record({
  requestMs: fc.constant(1),
  answerMs: fc.oneof({ weight: 2, arbitrary: fc.constant(1) }, upTo(240)),
  kind: fc.constant<Fate["kind"]>("fine"),
});

const disasters = (
  server: fc.Arbitrary<Disaster["server"]>,
  kinds: Disaster["kind"][],
  minLength = 0,
): fc.Arbitrary<Disaster[]> =>
  fc.array(
    fc.record({
      atMs: upTo(troubleMs - longestDisasterMs),
      server,
      kind: fc.constantFrom(...kinds),
      forMs: upTo(longestDisasterMs),
    }),
    { minLength, maxLength: 10 },
  );

const servers = (rates: number[], most: number): fc.Arbitrary<SimulationPlan["servers"]> =>
  fc.array(
    fc.record({
      offsetMs: fc.integer({ min: -1_000_000_000, max: 1_000_000_000 }),
      rate: fc.constantFrom(...rates),
      restMs: upTo(2000),
      saveMs: upTo(400),
      isPatient: fc.boolean(),
      isHeir: fc.boolean(),
    }),
    { minLength: 2, maxLength: most },
  );

const fates = (fate: fc.Arbitrary<Fate>): fc.Arbitrary<Fate[]> => fc.array(fate, { minLength: 1, maxLength: 200 });

const anyServer = fc.oneof(fc.constant("owner" as const), fc.nat({ max: 3 }));

/** Everything at once: bad connections, servers that die, stop and are cut off, and clocks as far apart as allowed. */
export const wildPlan: fc.Arbitrary<SimulationPlan> = fc.record({
  hasSoundClocks: fc.constant(true),
  pollMs: fc.constant(50),
  servers: servers([0.99, 1, 1.01], 4),
  fates: fates(wildFate),
  disasters: disasters(anyServer, ["stop", "die", "cut"]),
});

/**
 * The hardest case for keeping two owners apart: the owner is cut off, another server looks all the time, and the
 * clocks are the worst.
 */
export const sharpPlan: fc.Arbitrary<SimulationPlan> = fc.record({
  hasSoundClocks: fc.constant(true),
  pollMs: fc.constant(5),
  servers: servers([1], 2).map((all) =>
    all.map((server, index) => ({ ...server, rate: index === 0 ? 0.99 : 1.01, isPatient: true, restMs: 10 })),
  ),
  fates: fates(lateAnswer),
  // The outage is just long enough for the other server to take over, so that it happens often.
  disasters: disasters(fc.constant("owner"), ["stop", "cut"], 5).map((all) =>
    all.map((disaster) => ({ ...disaster, forMs: 1500 })),
  ),
});

/** Clocks that are further apart than allowed. */
export const lawlessPlan: fc.Arbitrary<SimulationPlan> = fc.record({
  hasSoundClocks: fc.constant(false),
  pollMs: fc.constant(50),
  servers: servers([0.1, 0.5, 1, 2, 10], 3),
  fates: fates(wildFate),
  disasters: disasters(anyServer, ["stop", "die", "cut"]),
});
