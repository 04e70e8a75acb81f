/**
 * A vitest reporter that prints from time to time how far the run has got.
 *
 * @typedef {import("vitest/node").TestModule} TestModule
 */

/** At this interval a run of five minutes prints about a page. */
const everyMs = 15_000;

// Vitest requires a reporter to be the default export.
// oxlint-disable-next-line import/no-default-export
export default class ProgressReporter {
  #files = 0;
  #finished = 0;
  #passed = 0;
  #failed = 0;
  #startedMs = 0;
  /** @type {NodeJS.Timeout | undefined} */
  #timer;

  /** @param {readonly unknown[]} specifications */
  onTestRunStart(specifications) {
    this.#files = specifications.length;
    this.#startedMs = performance.now();
    this.#timer = setInterval(() => this.#print(), everyMs);
    this.#timer.unref();
  }

  /** @param {TestModule} module */
  onTestModuleEnd(module) {
    this.#finished += 1;
    for (const test of module.children.allTests()) {
      const { state } = test.result();
      if (state === "passed") this.#passed += 1;
      if (state === "failed") this.#failed += 1;
    }
  }

  onTestRunEnd() {
    clearInterval(this.#timer);
    this.#print();
  }

  #print() {
    const seconds = Math.round((performance.now() - this.#startedMs) / 1000);
    const files = `${this.#finished} of ${this.#files} files`;
    console.log(`${files}, ${this.#passed} tests passed, ${this.#failed} failed, ${seconds} s`);
  }
}
