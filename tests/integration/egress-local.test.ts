import { egressContract } from "../support/egress-contract.ts";

egressContract("local");
