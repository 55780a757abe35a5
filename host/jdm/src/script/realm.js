(prepare,clock,date)=>{
// A realm of the host's own: made ahead, for one evaluation. It has no libraries; whoever looks for one ends the run, and the
// engine, which has them, runs it again.
const G=globalThis,define=Object.defineProperty,parse=JSON.parse;
let wanted;
const stop=()=>{wanted=1;throw 0};
for(const name of["dayjs","Big"])define(G,name,{configurable:true,enumerable:true,get:stop,set(value){define(G,name,{value,writable:true,configurable:true,enumerable:true})}});
G.log=[];
const lazy=[()=>wanted,()=>({get moment(){return stop()},get dayjs(){return stop()},get Big(){return stop()},env:{}})];
return(source,input,time,a,b,c,d)=>{
prepare(source,Infinity,time===void 0?0:clock(date,time,a,b,c,d),0,lazy);
return G.main(parse(input))}}
