import { defineService } from "@atoll/live/app";

export const plugin = defineService({
  init: () => ({}),
  call: { apply: (_state, text: string): string => text.toUpperCase() },
});
