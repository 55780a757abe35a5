(date,time,a,b,c,d,salt)=>{
// Replaces what reads the clock or draws random numbers. Answers a function that tells whether either was used.
const G=globalThis,define=Object.defineProperty,Real=Date,imul=Math.imul,make=eval;
let used=0,mixed=false;
const now=()=>{used=1;return time};
delete G.now;
delete G.performance;
// Date is made when it is first looked at: most rules never do.
const put=value=>define(G,"Date",{value,writable:true,configurable:true});
define(G,"Date",{configurable:true,get(){const value=make(date)(Real,now);put(value);return value},set:put});
// sfc32, seeded by the host and mixed with the input, so that a node that runs for each element draws anew for each.
const next=()=>{const t=(a+b|0)+d|0;d=d+1|0;a=b^b>>>9;b=c+(c<<3)|0;c=c<<21|c>>>11;c=c+t|0;return t>>>0};
Math.random=()=>{
used=1;
if(!mixed){mixed=true;const s=salt();for(let i=0;i<s.length;i++)a=imul(a^s.charCodeAt(i),16777619);for(let i=0;i<15;i++)next()}
return(next()*2097152+(next()>>>11))/9007199254740992};
return()=>used}
