------------------------------ MODULE PdPrefill ------------------------------
(***************************************************************************)
(* What prefill does in PdLedger: it computes chunks into source pages,    *)
(* posts their writes, and says when they are done.  It knows an attempt   *)
(* by its room: the id of its transfer.                                    *)
(***************************************************************************)
EXTENDS PdState

InRoom(r, a) ==                 \* whom prefill knows by the id of this attempt; <<>> for nobody
  LET here == {e \in prefill.rooms : e[1] = Room[r]}
  IN IF Room[r] = Nobody THEN IF jobs[r][a].stage = "none" THEN <<>> ELSE <<r, a>>
     ELSE IF here = {} THEN <<>> ELSE LET e == CHOOSE e \in here : TRUE IN <<e[2], e[3]>>

(* Decode has pages for an attempt.  A second copy changes nothing, unless *)
(* the attempt has ended since: that opens it again, if no guard minds; so *)
(* does a reserve that comes after the abort that follows it.              *)
ReceiveReserve(m, left) ==
  LET r == m.request
      a == m.attempt
      old == jobs[r][a]
      holder == InRoom(r, a)
      mine == holder = <<r, a>>
      served == mine /\ ~old.released /\ old.stage # "offered"
      inUse == holder # <<>> /\ ~mine /\ ~jobs[holder[1]][holder[2]].released
      over == old.closed \/ (mine /\ old.released)
      refused == (inUse /\ Guarded("unique-transfer-id")) \/ (over /\ Guarded("remember-ended"))
      begins == ~Routed \/ (old.stage = "offered" /\ ~old.released)
      first == IF r \in TooLong THEN 0 ELSE Granted[r] - Len(m.pages)
      job == [NewJob EXCEPT !.stage = IF begins THEN "waiting" ELSE "reserved", !.first = first, !.pages = m.pages,
                            !.computed = first \div ChunkPages, !.posted = first \div ChunkPages,
                            !.offered = old.offered, !.closed = old.closed]
      \* where an id is used again, what was said of its last owner before comes before
      inOrder == "overtake" \in May \/ Room[r] = Nobody \/ ~\E o \in net :
                   /\ o.type \in {"reserve", "abort", "complete"} /\ Room[o.request] = Room[r]
                   /\ <<o.request, o.attempt>> # <<r, a>> /\ <<Room[r], o.request, o.attempt>> \notin decode.rooms
      turnedDown == IF old.closed THEN Message("abort-ack", r, a, NoChunk, 0, TRUE, m.pages) ELSE Word("failed", r, a)
  IN /\ inOrder
     /\ IF served \/ refused
        THEN /\ net' = IF served THEN left ELSE left \cup {turnedDown}
             \* what is said of its pages later is said of these
             /\ jobs' = IF mine /\ ~served THEN [jobs EXCEPT ![r][a].pages = m.pages] ELSE jobs
             /\ UNCHANGED <<prefill, waiting>>
        ELSE /\ net' = left
             /\ jobs' = [jobs EXCEPT ![r][a] = job]
             /\ waiting' = IF begins THEN Append(waiting, <<r, a>>) ELSE waiting
             /\ prefill' = IF Room[r] = Nobody THEN prefill
                           ELSE [prefill EXCEPT !.rooms = {e \in @ : e[1] # Room[r]} \cup {<<Room[r], r, a>>}]
     /\ UNCHANGED <<decode, attempts, cache, queue, wire, strays>>

Offer(r, a) ==                  \* a router has the request for prefill too
  LET job == jobs[r][a]
      begins == job.stage = "reserved" /\ ~job.released
      next == IF begins THEN "waiting" ELSE IF job.stage = "none" THEN "offered" ELSE job.stage
  IN /\ Routed /\ ~job.offered
     /\ jobs' = [jobs EXCEPT ![r][a].offered = TRUE, ![r][a].stage = next,
                             ![r][a].released = @ \/ (next = "offered" /\ job.closed)]
     /\ waiting' = IF begins THEN Append(waiting, <<r, a>>) ELSE waiting
     /\ Did("Offer", r, a, 0, 0)
     /\ UNCHANGED <<decode, prefill, attempts, cache, queue, wire, net, strays>>

GiveUpOffer(r, a) ==            \* no pages have come from decode
  /\ "bootstrap-time-out" \in May /\ jobs[r][a].stage = "offered" /\ ~jobs[r][a].released
  /\ jobs' = [jobs EXCEPT ![r][a].released = TRUE]
  /\ Did("GiveUpOffer", r, a, 0, 0)
  /\ UNCHANGED <<decode, prefill, attempts, cache, queue, waiting, wire, net, strays>>

(* What is computed and posted of a request: of a placeholder one page.    *)
PageCount(r) == IF r \in TooLong THEN 1 ELSE Granted[r]
Chunks(r) == IF r \in TooLong THEN 1 ELSE ChunkCount(r)
Indices(r, job, chunk) == IF r \in TooLong THEN {0} ELSE OfChunk(r, chunk, job.first)
FirstOf(r, job, chunk) == IF r \in TooLong THEN 0 ELSE Max(chunk * ChunkPages, job.first)
KvOf(r, a, index) == Own(r, a, IF r \in TooLong THEN -1 ELSE index)

CanAccept == waiting # <<>> /\ Len(prefill.free) >= PageCount(Head(waiting)[1])
Accept(r, a) ==
  /\ CanAccept /\ Head(waiting) = <<r, a>>
  /\ LET got == Take([pool |-> prefill, tickets |-> <<>>], PageCount(r), r, a)
     IN /\ prefill' = got.pool
        /\ jobs' = [jobs EXCEPT ![r][a].stage = "accepted", ![r][a].sources = got.tickets]
  /\ waiting' = Tail(waiting)
  /\ Did(IF Pulls THEN "Pin" ELSE "Accept", r, a, 0, 0)
  /\ UNCHANGED <<decode, attempts, cache, queue, wire, net, strays>>

Source(job, i) == job.sources[i + 1]
Target(job, i) == job.pages[i - job.first + 1]

Computed(content, job, r, a, chunk) ==      \* a chunk's KV is in its source pages
  LET indices == Indices(r, job, chunk)
      IndexAt(p) == CHOOSE i \in indices : Source(job, i).page = p
  IN [p \in DOMAIN content |-> IF \E i \in indices : Source(job, i).page = p
                               THEN [l \in LayerSet |-> KvOf(r, a, IndexAt(p))] ELSE content[p]]

Compute(r, a, chunk) ==         \* where the forward is queued it is a step of its own
  LET job == jobs[r][a]
  IN /\ "late-forward" \in Has
     /\ job.stage = "accepted" /\ ~job.released /\ job.computed = chunk /\ chunk < Chunks(r)
     /\ prefill' = [prefill EXCEPT !.content = Computed(@, job, r, a, chunk)]
     /\ jobs' = [jobs EXCEPT ![r][a].computed = chunk + 1]
     /\ Did("Compute", r, a, Part(r, a, chunk), 0)
     /\ UNCHANGED <<decode, attempts, cache, queue, waiting, wire, net, strays>>

(* The chunk's writes are posted: from now on they cannot be called back.  *)
Post(r, a, chunk) ==
  LET job == jobs[r][a]
      indices == Indices(r, job, chunk)
      now == "late-forward" \notin Has
      last == FirstOf(r, job, chunk) + Cardinality(indices) - 1
      withSlot == Slots > 0 /\ chunk + 1 = Chunks(r)         \* the first token is a part of the last chunk
      slot == [request |-> r, attempt |-> a, index |-> last, layer |-> SlotLayer, epoch |-> prefill.epoch,
               page |-> attempts[r][a].slot, gen |-> 0, source |-> Source(job, last).page, sourceGen |-> 0]
  IN /\ job.stage = "accepted" /\ job.posted = chunk /\ chunk < Chunks(r)
     /\ ~job.released /\ ~Pulls
     /\ now \/ chunk < job.computed \/ ~Guarded("compute-before-post")
     /\ LET granted == Grant(prefill, [n \in 1..Cardinality(indices) |-> Source(job, FirstOf(r, job, chunk) + n - 1)], Nic)
            posted == IF now THEN [granted EXCEPT !.content = Computed(@, job, r, a, chunk)] ELSE granted
            gone == job.aborted /\ chunk + 1 = Chunks(r)        \* it has gone on to the end
            books == ReleaseAll([pool |-> posted, strays |-> strays], job.sources)
        IN /\ prefill' = IF gone THEN books.pool ELSE posted
           /\ strays' = IF gone THEN books.strays ELSE strays
           /\ jobs' = [jobs EXCEPT ![r][a].posted = chunk + 1, ![r][a].released = gone,
                                   ![r][a].outstanding = @ \cup (indices \X LayerSet)
                                                             \cup (IF withSlot THEN {<<last, SlotLayer>>} ELSE {})]
     /\ wire' = wire \cup (IF withSlot THEN {slot} ELSE {}) \cup {[request |-> r, attempt |-> a, index |-> i, layer |-> l, epoch |-> prefill.epoch,
                            page |-> Target(job, i).page, gen |-> Target(job, i).gen,
                            source |-> Source(job, i).page, sourceGen |-> Source(job, i).gen]
                           : i \in indices, l \in LayerSet}
     /\ Did("Post", r, a, Part(r, a, chunk), 0)
     /\ UNCHANGED <<decode, attempts, cache, queue, waiting, net>>

OfJob(job, r, chunk) ==         \* the pages of a chunk that prefill was asked to fill
  [i \in 1..Cardinality(Indices(r, job, chunk)) |-> job.pages[FirstOf(r, job, chunk) - job.first + i]]
Written(job, r, a, chunk, rank) ==
  Message("written", r, a, chunk, rank, <<chunk, rank>> \notin job.failed, OfJob(job, r, chunk))
Acknowledged(job, r, a) ==
  Message("abort-ack", r, a, NoChunk, 0, job.failed = {} \/ ~Guarded("ack-when-drained"), job.pages)

(* The transport is done with some writes of one rank's part of a chunk.   *)
(* Only success says that they have landed.                                *)
Complete(r, a, done, ok) ==
  LET old == jobs[r][a]
      one == CHOOSE w \in done : TRUE
      chunk == ChunkOf(one[1])
      rank == RankOf(one[2])
      job == [old EXCEPT !.outstanding = @ \ done,
                         !.done = IF ok THEN @ \cup done ELSE @,
                         !.failed = IF ok THEN @ ELSE @ \cup {<<chunk, rank>>}]
      whole == SelectSeq([i \in 1..PageCount(r) |-> i - 1],
                         LAMBDA i : (\E w \in done : w[1] = i) /\ \A l \in LayerSet : <<i, l>> \in job.done)
  IN /\ done # {} /\ done \subseteq old.outstanding
     /\ \A w \in done : ChunkOf(w[1]) = chunk /\ RankOf(w[2]) = rank
     /\ ok \/ "fail" \in May
     /\ ok /\ "answer-early" \notin May =>
          ~\E w \in wire : w.request = r /\ w.attempt = a /\ w.epoch = prefill.epoch /\ <<w.index, w.layer>> \in done
     /\ jobs' = [jobs EXCEPT ![r][a] = [job EXCEPT !.owes = @ /\ job.outstanding # {}]]
     /\ prefill' = CloseAll(prefill, [n \in 1..Len(whole) |-> job.sources[whole[n] + 1]], Nic)
     /\ net' = net
          \cup (IF \A w \in job.outstanding : ChunkOf(w[1]) # chunk \/ RankOf(w[2]) # rank
                THEN {Written(job, r, a, chunk, rank)} ELSE {})
          \cup (IF job.owes /\ job.outstanding = {} THEN {Acknowledged(job, r, a)} ELSE {})
     /\ DidPart((IF ok THEN "Complete" ELSE "Fail") \o (IF \A w \in done : w[2] = SlotLayer THEN "Slot" ELSE ""),
                r, a, Part(r, a, chunk), rank, 0)
     /\ UNCHANGED <<decode, attempts, cache, queue, waiting, wire, strays>>

-----------------------------------------------------------------------------
LetGo(job, marks) ==            \* its source pages go
  IF job.released THEN strays' = marks /\ UNCHANGED prefill
  ELSE LET books == ReleaseAll([pool |-> prefill, strays |-> marks], job.sources)
       IN prefill' = books.pool /\ strays' = books.strays

(* What a message tells is taken for the attempt that is in its room.      *)
Taken(m, r, a) == IF <<r, a>> = <<m.request, m.attempt>> THEN strays
                  ELSE strays \cup {Stray("message", m.request, m.attempt, r)}

(* Decode has given an attempt up: no more is posted, unless no guard      *)
(* minds, and decode is told when nothing is under way any more.           *)
Aborted(m, left, r, a) ==
  LET job == jobs[r][a]
      goesOn == ~Guarded("stop-posting-on-abort") /\ ~job.released /\ job.posted < Chunks(r)
      owes == Guarded("ack-when-drained") /\ job.outstanding # {}
  IN /\ IF goesOn THEN strays' = Taken(m, r, a) /\ UNCHANGED prefill ELSE LetGo(job, Taken(m, r, a))
     /\ jobs' = [jobs EXCEPT ![r][a] = [job EXCEPT !.aborted = TRUE, !.owes = owes, !.released = @ \/ ~goesOn]]
     /\ waiting' = IF goesOn THEN waiting ELSE Less(waiting, <<r, a>>)
     /\ net' = left \cup (IF owes THEN {} ELSE {Acknowledged(job, r, a)})
     /\ UNCHANGED <<decode, attempts, cache, queue, wire>>

ReceiveAbort(m, left) ==
  LET r == m.request
      a == m.attempt
      job == jobs[r][a]
  IN /\ "post-at-once" \in Has => ~(job.stage = "accepted" /\ ~job.released /\ job.posted < Chunks(r))
                                   /\ ~(CanAccept /\ Head(waiting) = <<r, a>>)
     /\ \/ InRoom(r, a) = <<r, a>> \/ "overtake" \in May
        \/ ~\E o \in net : o.type = "reserve" /\ o.request = r /\ o.attempt = a
     /\ IF InRoom(r, a) # <<>> THEN Aborted(m, left, InRoom(r, a)[1], InRoom(r, a)[2])
        ELSE /\ jobs' = [jobs EXCEPT ![r][a].closed = TRUE]
             /\ net' = left /\ UNCHANGED <<decode, prefill, attempts, cache, queue, waiting, wire, strays>>

ReceiveComplete(m, left) ==
  LET here == InRoom(m.request, m.attempt)
  IN /\ IF here = <<>>
        THEN UNCHANGED <<prefill, jobs, strays, waiting>>
        ELSE /\ LetGo(jobs[here[1]][here[2]], Taken(m, here[1], here[2]))
             /\ jobs' = [jobs EXCEPT ![here[1]][here[2]].released = TRUE]
             /\ waiting' = Less(waiting, here)
     /\ net' = left
     /\ UNCHANGED <<decode, attempts, cache, queue, wire>>

WillGiveUp(r, a) == "receive-time-out" \in May /\ Guarded("receive-watchdog") /\ ~Pulls
                    /\ jobs[r][a].stage \notin {"none", "offered"} /\ ~jobs[r][a].released
GiveUpSource(r, a) ==           \* the watchdog of prefill: decode has not said that it is done
  /\ WillGiveUp(r, a)
  /\ LetGo(jobs[r][a], strays)
  /\ jobs' = [jobs EXCEPT ![r][a].released = TRUE]
  /\ waiting' = Less(waiting, <<r, a>>)
  /\ net' = IF Guarded("tell-peer-of-end") THEN net \cup {Word("failed", r, a)} ELSE net
  /\ Did("GiveUpSource", r, a, 0, 0)
  /\ UNCHANGED <<decode, attempts, cache, queue, wire>>

Restart ==          \* prefill dies, and another takes its place: it knows of nothing
  /\ "restart" \in May /\ prefill.epoch = 0
  /\ prefill' = [NewPool(PrefillPages) EXCEPT !.epoch = 1, !.pages = [p \in DOMAIN @ |-> FreePage(100)]]     \* no generation twice
  /\ jobs' = [r \in Requests |-> [a \in DOMAIN jobs[r] |-> NewJob]]
  /\ waiting' = <<>>
  /\ net' = net \cup {Message("hello", Nobody, 1, NoChunk, 0, TRUE, <<>>)}
  /\ Did("Restart", Nobody, 1, 0, 0)
  /\ UNCHANGED <<decode, attempts, cache, queue, wire, strays>>
=============================================================================
