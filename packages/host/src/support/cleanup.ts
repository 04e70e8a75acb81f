/**
 * Undo steps, run in reverse unless released. Every step runs even if another fails; the failures are thrown together
 * at the end. Node 20 has no AsyncDisposableStack.
 */
export class Cleanup implements AsyncDisposable {
  #steps: (() => unknown)[] = [];

  defer(step: () => unknown): void {
    this.#steps.push(step);
  }

  /** Keeps what was acquired: no step is run any more. */
  release(): void {
    this.#steps = [];
  }

  async run(): Promise<void> {
    const errors: unknown[] = [];
    for (let step = this.#steps.pop(); step !== undefined; step = this.#steps.pop()) {
      try {
        await step();
      } catch (error) {
        errors.push(error);
      }
    }
    if (errors.length === 1) throw errors[0];
    if (errors.length > 1) throw new AggregateError(errors, "Several clean-up steps failed");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.run();
  }
}
