/**
 * Words that the glossary in ARCHITECTURE.md does not use, with what to write instead. The check refuses them in names,
 * comments, messages and Markdown. A key may be a phrase. It is matched without regard to case and to the style of a
 * name, so that `hand over` would also match `handOver` and `hand_over`.
 *
 * @type {Readonly<Record<string, string>>}
 */
export const retiredWords = {
  afresh: "again, or from the start",
  aftermath: "leftovers",
  anew: "again",
  anybody: "any client, any process: name who it is",
  arrivals: "pending acquisitions",
  burnt: "spent, invalid",
  deed: "action, operation",
  deeds: "actions, operations",
  departures: "hand-offs",
  doomed: "crashing",
  everybody: "all clients, all callers: name who they are",
  heed: "apply, follow, respect",
  lasting: "persistent",
  meanwhile: "while …, until then",
  nobody: "no client, no process: name who it is",
  roster: "registry",
  somebody: "a client, an operator: name who it is",
  takings: "acquisitions",
  tell: "emit, log, report, return, say, distinguish",
  telling: "emitting, logging, reporting, saying",
  tells: "emits, logs, reports, returns, says",
  thereupon: "then",
  told: "emitted, logged, reported, returned, said",
  unborn: "abandoned",
  whereabouts: "location, metadata cache",
  whoever: "the client that, the caller that: name who it is",
};

/**
 * Lines in which a retired word is a name that another program gave.
 *
 * @type {readonly { path: RegExp, line: RegExp }[]}
 */
export const exceptions = [
  { path: /^tools\/text\//, line: /./ },
  // The user that Linux gives to ids without a name.
  { path: /./, line: /["'`]nobody["'`:]|\bnobody:x:|\bnobody\\n|\buser nobody\b|\bnobody:nogroup\b/ },
  // The name of a file in the data directory, which earlier servers read as well.
  { path: /spent-cursors\.ts$/, line: /"burnt-cursor"/ },
];
