// One turn: how its prompt relates to the one before, and, where a capture holds it, every token of it.
import { count, element, legend, remark, seconds, timeline, tokenBar } from "./timeline.js";
