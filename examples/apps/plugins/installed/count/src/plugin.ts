import { defineService } from "@atoll/live/app";

/** Numbers the texts. The count is kept when a new version of this plug-in is loaded. */
export const plugin = defineService({
  init: () => ({ count: 0 }),
  call: {
    apply(state, text: string): string {
      state.count += 1;
      return `${state.count}: ${text}`;
    },
  },
});
